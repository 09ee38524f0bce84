import type { TrackedEvent } from '@framework/core/adapter';
import type { OfShards } from '@framework/operator';

/** The history of one model in one database, up to the last event that was seen. */
interface Seen {
  readonly model: string;
  readonly where: string;
  readonly version: number;
  readonly ordinal: number;
  readonly actionId: string;
}

/**
 * Looks for gaps and repeats in the history of a model, event by event in the order of the log's answers. Models of different names may
 * have the same id; each of them has a history of its own.
 */
export class HistoryCheck {
  /** What is wrong, in sentences. */
  readonly faults: string[] = [];
  /** How many events were looked at. */
  count = 0;
  readonly #eventIds = new Set<string>();
  readonly #last = new Map<string, Seen>();
  #first: number | undefined;

  /** The lowest version; above 1 if earlier parts of the log were dropped. */
  get firstVersion(): number | undefined {
    return this.#first;
  }

  /** Events of one database come by version, and then by ordinal. */
  add({ event, shards }: OfShards<TrackedEvent>): void {
    const { id, modelName: model, modelVersion: version, ordinal, actionId } = event;
    const where = shards.join(', ');
    this.count++;
    this.#first = Math.min(version, this.#first ?? version);
    if (this.#eventIds.has(id))
      this.faults.push(`The event ${id} of version ${version} occurs twice (${where}).`);
    this.#eventIds.add(id);
    const key = JSON.stringify([model, where]);
    const last = this.#last.get(key);
    this.#last.set(key, { model, where, version, ordinal, actionId });
    if (last === undefined) return;
    if (version > last.version + 1) {
      const missing =
        version === last.version + 2 ? `${last.version + 1} is` : `${last.version + 1} to ${version - 1} are`;
      this.faults.push(`Version ${missing} missing (${where}).`);
    }
    // One change of a model may have several events, all of one action.
    if (version === last.version && (actionId !== last.actionId || ordinal === last.ordinal))
      this.faults.push(
        `Version ${version} occurs twice, in the actions ${last.actionId} and ${actionId} (${where}).`,
      );
  }

  /** Adds what only shows when every database was read. */
  end(): void {
    for (const histories of Map.groupBy(this.#last.values(), ({ model }) => model).values()) {
      if (histories.length < 2) continue;
      const databases = histories.map(({ where }) => where).join('; ');
      this.faults.push(`Several databases have a history of the model: ${databases}.`);
    }
  }
}
