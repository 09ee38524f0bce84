import {
  type DatabaseDelivery,
  type DeliveryStore,
  InvalidCursorException,
  type Page,
  type ParkedFilter,
  type ParkedRow,
} from '@framework/core';

const limitDefault = 100;

/**
 * One page of the parked events of all databases, one database after the other.
 *
 * @throws InvalidCursorException `invalid-cursor` when `after` is no `next` of an earlier page
 */
export async function findParkedPage(
  databases: readonly DatabaseDelivery[],
  filter: ParkedFilter,
  { limit = limitDefault, after }: { readonly limit?: number; readonly after?: string },
): Promise<Page<ParkedRow>> {
  let { index, within } = place(after, databases.length);
  const items: ParkedRow[] = [];
  for (; index < databases.length; index++, within = undefined) {
    if (items.length === limit) return { items, next: `${index}:` };
    const store = databases[index]?.store;
    const own = store && (await filterIn(store, filter));
    if (own === undefined) continue;
    const page = await store?.deadLetters.find(own, {
      limit: limit - items.length,
      ...(within !== undefined && { after: within }),
    });
    items.push(...(page?.items ?? []));
    if (page?.next !== undefined) return { items, next: `${index}:${page.next}` };
  }
  return { items, next: undefined };
}

/** A filter by one of a handler's names as one by its permanent id; `undefined` where the handler is unknown. */
export async function filterIn(
  { cursors }: DeliveryStore,
  filter: ParkedFilter,
): Promise<ParkedFilter | undefined> {
  if (filter.handler === undefined) return filter;
  const handler = await cursors.find(filter.handler);
  return handler === undefined ? undefined : { ...filter, handler };
}

function place(
  after: string | undefined,
  databaseCount: number,
): { readonly index: number; readonly within: string | undefined } {
  if (after === undefined) return { index: 0, within: undefined };
  const colon = after.indexOf(':');
  const index = Number(after.slice(0, colon));
  if (colon < 1 || !Number.isInteger(index) || index < 0 || index >= databaseCount) {
    throw new InvalidCursorException(after);
  }
  const within = after.slice(colon + 1);
  return { index, within: within === '' ? undefined : within };
}
