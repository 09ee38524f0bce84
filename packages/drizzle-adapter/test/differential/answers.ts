import type {
  Cursor,
  DeliverableEvent,
  HandlerKey,
  BlockedHead,
  BlockedModel,
  BlockedPlace,
} from '@framework/core/adapter';
import type { Known } from './known.js';
import type { Both, Store } from './store-pair.js';

export async function readAll(
  { log }: Store,
  {
    slots,
    cursor,
    limit,
  }: { readonly slots: readonly number[]; readonly cursor: Cursor; readonly limit: number },
): Promise<{ readonly events: readonly DeliverableEvent[]; readonly cursor: Cursor }> {
  const events: DeliverableEvent[] = [];
  let place = cursor;
  for (let more = true; more;) {
    const batch = await log.read(slots, place, limit);
    events.push(...batch.events);
    ({ next: place, more } = batch);
  }
  return { events, cursor: place };
}

export async function handlerKeysOf(
  { manager: { keys } }: Store,
  olderThanMs: number,
  limit: number,
): Promise<readonly HandlerKey[]> {
  const found: HandlerKey[] = [];
  let after: string | undefined;
  do {
    const page = await keys.findHandlerKeys({ olderThanMs, limit, ...(after !== undefined && { after }) });
    found.push(...page.items);
    after = page.next;
  } while (after !== undefined);
  return found;
}

export async function modelsOf(
  { blocked }: Store,
  places: readonly BlockedPlace[],
  limit: number,
): Promise<readonly (BlockedModel & Pick<BlockedHead, 'hasFailed'>)[]> {
  const models = [...(await blocked.models(places, { limit }))];
  for (let count = models.length; count === limit;) {
    const page = await blocked.models(places, { limit, after: models.at(-1) });
    models.push(...page);
    count = page.length;
  }
  return models;
}

export function nextOf(
  page: Both<{ readonly next?: string | undefined }> | undefined,
): Both<string> | undefined {
  const [inMemory, onPostgres] = [page?.memory.next, page?.postgres.next];
  return inMemory === undefined || onPostgres === undefined
    ? undefined
    : { memory: inMemory, postgres: onPostgres };
}

/** An event without the fields that only one of the stores knows. */
export function plain(event: Partial<DeliverableEvent>): unknown {
  const { bytes: _bytes, omitted: _omitted, ...said } = JSON.parse(JSON.stringify(event)) as typeof event;
  return said;
}

export function headOf(head: BlockedHead, known: Known): unknown {
  const { position, event, hasFailed, attempts, uncounted, openCount, doneIds, token } = head;
  const state = [hasFailed, attempts, uncounted, openCount, doneIds, known.named([token])];
  return [keyOf(head), position.modelVersion, position.ordinal, event?.id, ...state];
}

export function keyOf({ handler, modelId }: BlockedModel): string {
  return `${handler} ${modelId}`;
}

export function modelOf({ handler, slot, modelName, modelId }: BlockedModel): BlockedModel {
  return { handler, slot, modelName, modelId };
}

/** The list in an order that does not depend on the store. */
export function inOrder(list: readonly unknown[]): readonly string[] {
  return list.map((item) => JSON.stringify(item)).toSorted();
}

/**
 * Events by their models, those of one model in order: if plans of a group are written alone, the stores may write the models in
 * a different order, which is not guaranteed.
 */
export function byModels(events: readonly DeliverableEvent[]): readonly unknown[] {
  const byModel = Map.groupBy(events, ({ modelId }) => modelId);
  return [...byModel.entries()]
    .sort(([one], [other]) => (one < other ? -1 : 1))
    .map(([, own]) => own.map(plain));
}
