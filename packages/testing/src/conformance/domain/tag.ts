import { Entity, type NewEntity, ShardedId, type ShardIdentifier } from '@framework/core';

/** The suite's entity: it has a version, but no dates and no events. */
export class Tag extends Entity<Tag, ShardedId<Tag>, 'ACTIVE' | 'DELETED'> {
  /** Text. */
  readonly label: string;

  constructor(fields: NewEntity<Tag>) {
    super(fields);
    this.label = fields.label;
  }

  /** A new tag on a shard. */
  static of(shard: ShardIdentifier, label: string): Tag {
    return new Tag({ id: ShardedId.generate(Tag, shard), state: 'ACTIVE', label });
  }

  /** Changes the label. */
  rename(label: string): Tag {
    return this.copy({ label });
  }

  /** Takes the tag out of every read. */
  delete(): Tag {
    return this.copy({ state: 'DELETED' });
  }
}
