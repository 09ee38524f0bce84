import { FrameworkException } from './framework-exception.js';

/** No row has this id, or its state is DELETED. */
export class EntityNotFoundException extends FrameworkException {
  /** The model's name. */
  readonly model: string;
  /** The id that was asked for. */
  readonly id: string;

  /** @param reason why it cannot exist, where that is known */
  constructor(model: string, id: string, reason?: string) {
    super('entity-not-found', `${model} ${id} does not exist${reason === undefined ? '' : `: ${reason}`}`);
    this.model = model;
    this.id = id;
  }
}

/** A condition that must match at most one row matched several. */
export class NotUniqueException extends FrameworkException {
  /** The model's name. */
  readonly model: string;

  constructor(model: string) {
    super(
      'not-unique',
      `findOneWhere matched more than one ${model}: make the condition unique or use findAllWhere`,
    );
    this.model = model;
  }
}

/** The strategy cannot tell the shard from an id alone, so a read by id has no place to go. */
export class ShardUndeterminedException extends FrameworkException {
  /** The model's name. */
  readonly model: string;
  /** The id that was asked for. */
  readonly id: string;

  constructor(model: string, id: string) {
    super(
      'shard-undetermined',
      `The sharding strategy of ${model} cannot tell the shard of id ${id}: read by a condition (findOneWhere), which asks all shards`,
    );
    this.model = model;
    this.id = id;
  }
}
