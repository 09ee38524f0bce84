import type {
  BlockedAttempt,
  BlockedFailure,
  BlockedHead,
  BlockedModel,
  BlockedModels,
  BlockedMove,
  BlockedPlace,
  DeliverableEvent,
  DuePlace,
  HandledEvent,
  LeasedModel,
  ModelPosition,
} from '@framework/core/adapter';

import type { Connection } from '../connection/connection.js';
import { EventRow, type EventTexts, bytesLimit, eventTexts, interned } from '../read/event-row.js';
import {
  beginText,
  dueHeadsText,
  failText,
  giveBackText,
  holdText,
  mayComeAgainText,
  modelsText,
  moveText,
  nextDueText,
  readText,
} from './blocked-model-sql.js';

/** What a row says about a blocked model, apart from its first event. */
type StoredHead = Omit<BlockedHead, 'event' | 'hasFailed'> & { readonly eventId: string | null };

/** Stores the models whose events wait for handlers, in one PostgreSQL database. */
export class PgBlockedModels implements BlockedModels {
  readonly #manager: Pick<Connection, 'query'>;
  readonly #intern = interned();

  constructor(manager: Pick<Connection, 'query'>) {
    this.#manager = manager;
  }

  fail(failures: readonly BlockedFailure[]): Promise<readonly string[]> {
    const attempts = Object.fromEntries(failures.map(givenAttempt));
    const values = [JSON.stringify(failures.map(givenFailure)), JSON.stringify(attempts)];
    return this.#lost('framework_block_failed', failText, failures, values);
  }

  hold(
    events: readonly { readonly handler: string; readonly token: string; readonly event: DeliverableEvent }[],
  ): Promise<readonly string[]> {
    const models = events.map(({ handler, token, event }) => {
      const { slot, modelName, modelId } = event;
      return { handler, token, slot, modelName, modelId, position: event };
    });
    return this.#lost('framework_hold_models', holdText, models, positionColumns(models));
  }

  move(moves: readonly BlockedMove[]): Promise<readonly string[]> {
    const keeps = moves.map(({ keepsAttempts = false }) => keepsAttempts);
    const values = [...positionColumns(moves), moves.map(({ ends }) => ends), keeps];
    return this.#lost('framework_move_models', moveText, moves, values);
  }

  async models(
    places: readonly BlockedPlace[],
    { limit, after }: { readonly limit: number; readonly after?: BlockedModel | undefined },
  ): Promise<readonly (BlockedModel & Pick<BlockedHead, 'hasFailed'>)[]> {
    const start =
      after === undefined ? ['', -1, '', ''] : [after.handler, after.slot, after.modelName, after.modelId];
    return this.#rows('framework_blocked_models', modelsText, [...placeColumns(places), limit, ...start]);
  }

  async dueHeads(
    places: readonly DuePlace[],
    limit: number,
    {
      bytesMax = bytesLimit,
      except = [],
    }: { readonly bytesMax?: number; readonly except?: readonly BlockedModel[] } = {},
  ): Promise<readonly BlockedHead[]> {
    const rows = await this.#texts('framework_due_heads', dueHeadsText, [
      ...placeColumns(places),
      limit,
      bytesMax,
      places.map(({ waitMaxMs }) => waitMaxMs ?? null),
      places.map(({ headsMax }) => headsMax ?? null),
      except.map(({ handler }) => handler),
      except.map(({ modelName }) => modelName),
      except.map(({ modelId }) => modelId),
    ]);
    return rows.map(([stored, ...texts]) => {
      const { eventId, ...head } = JSON.parse(stored ?? '') as StoredHead;
      const event = texts[0] === null ? undefined : new EventRow(texts, this.#intern, bytesMax);
      return { ...head, event, hasFailed: event !== undefined && event.id === eventId };
    });
  }

  async nextDueMs(places: readonly BlockedPlace[]): Promise<number | undefined> {
    const rows = await this.#rows<{ due_ms: number }>(
      'framework_next_due',
      nextDueText,
      placeColumns(places),
    );
    return rows[0]?.due_ms;
  }

  async begin(
    attempts: readonly { readonly head: BlockedHead; readonly attempt: BlockedAttempt }[],
  ): Promise<readonly boolean[]> {
    const heads = attempts.map(({ head }) => head);
    const rows = await this.#rows<{ place: number }>('framework_begin_attempts', beginText, [
      ...positionColumns(heads),
      attempts.map(({ attempt }) => attempt.id),
      attempts.map(({ attempt }) => attempt.counted),
      heads.map((head) => head.attempts),
      heads.map(({ uncounted }) => uncounted),
      heads.map(({ event, position }) => (event ?? position).modelVersion),
      heads.map(({ event, position }) => (event ?? position).ordinal),
    ]);
    const begun = new Set(rows.map(({ place }) => place));
    return attempts.map((_attempt, index) => begun.has(index + 1));
  }

  async giveBack(model: BlockedModel, { id }: BlockedAttempt): Promise<void> {
    const { handler, slot, modelName, modelId } = model;
    const values = [handler, slot, modelName, modelId, id];
    await this.#manager.query({ name: 'framework_give_back_attempt', text: giveBackText, values });
  }

  async read(
    models: readonly (LeasedModel & { readonly position: ModelPosition })[],
    limit: number,
    bytesMax: number = bytesLimit,
  ): Promise<readonly (readonly DeliverableEvent[])[]> {
    const events = models.map((): DeliverableEvent[] => []);
    const values = [...positionColumns(models), limit, bytesMax];
    for (const [place, ...texts] of await this.#texts('framework_read_models', readText, values))
      events[Number(place) - 1]?.push(new EventRow(texts, this.#intern, bytesMax));
    return events;
  }

  async mayComeAgain<Event extends HandledEvent>(events: readonly Event[]): Promise<readonly Event[]> {
    const rows = await this.#rows<{ place: number }>('framework_may_come_again', mayComeAgainText, [
      events.map(({ handler }) => handler),
      events.map(({ eventId }) => eventId),
      events.map(({ shard }) => shard.group),
      events.map(({ shard }) => shard.member),
    ]);
    const places = new Set(rows.map(({ place }) => place));
    return events.filter((_event, index) => places.has(index + 1));
  }

  /** Writes under leases unless nothing is given; returns the tokens of leases that are lost. */
  async #lost(
    name: string,
    text: string,
    given: readonly unknown[],
    values: unknown[],
  ): Promise<readonly string[]> {
    if (given.length === 0) return [];
    return (await this.#rows<{ token: string }>(name, text, values)).map(({ token }) => token);
  }

  async #rows<R extends object>(name: string, text: string, values: unknown[]): Promise<readonly R[]> {
    return (await this.#manager.query<R>({ name, text, values })).rows;
  }

  async #texts(name: string, text: string, values: unknown[]): Promise<readonly EventTexts[]> {
    return (await this.#manager.query<(string | null)[]>({ name, text, values, ...eventTexts })).rows;
  }
}

function givenFailure({ event, attempt, before, ...failure }: BlockedFailure): object {
  const { id, slot, modelName, modelId, modelVersion, ordinal, type } = event;
  const { retryAfterMs, doneIds = [], ...state } = failure;
  const place = { slot, model_name: modelName, model_id: modelId, model_version: modelVersion, ordinal };
  return {
    ...state,
    ...place,
    event_id: id,
    event_type: type,
    retry_after_ms: retryAfterMs,
    done_ids: doneIds,
    // Such a failure changes a row, and never adds one: the model may be open again by now.
    of_head: attempt !== undefined || before !== undefined,
  };
}

/** The attempt that failed or, if none was recorded, the counts before, by handler and event. */
function givenAttempt({
  handler,
  event,
  attempt,
  before,
  attempts,
  dead,
}: BlockedFailure): readonly [string, object] {
  const counts = { attempts: before?.attempts ?? 0, uncounted: before?.uncounted ?? 0 };
  const unrecorded = { ...counts, postponed: before?.attempts === attempts && !dead };
  return [`${handler} ${event.id}`, attempt === undefined ? unrecorded : { attempt: attempt.id }];
}

function placeColumns(places: readonly BlockedPlace[]): [string[], number[]] {
  return [places.map(({ handler }) => handler), places.map(({ slot }) => slot)];
}

function positionColumns(models: readonly (LeasedModel & { readonly position: ModelPosition })[]): unknown[] {
  return [
    ...placeColumns(models),
    models.map(({ token }) => token),
    models.map(({ modelName }) => modelName),
    models.map(({ modelId }) => modelId),
    models.map(({ position }) => position.modelVersion),
    models.map(({ position }) => position.ordinal),
  ];
}
