import { FrameworkError, InvalidCursorError, type Page, type ShardIdentifier } from '@framework/core';

import { type OfShards, type PartialPage, failureOf, shardTexts } from './answers.js';

/** Where each database continues, by its first shard: `null` at its end, a missing one at its beginning. */
export type Places = Readonly<Record<string, string | null>>;

/** Something that is read page by page: a database, or one shard. */
interface PageSource {
  readonly shards: readonly ShardIdentifier[];
}

/** The key of a source in {@link Places}. */
export function placeKey({ shards }: PageSource): string {
  return shardTexts(shards)[0] ?? '';
}

/** @throws InvalidCursorError `invalid-cursor` when the text is not the `next` of a page */
export function parsePlaces(after: string | undefined): Places {
  if (after === undefined) return {};
  try {
    const places: unknown = JSON.parse(after);
    if (typeof places === 'object' && places !== null && !Array.isArray(places)) {
      const entries = Object.entries(places).filter(
        (entry): entry is [string, string | null] => entry[1] === null || typeof entry[1] === 'string',
      );
      return Object.fromEntries(entries);
    }
  } catch {
    // Refused below.
  }
  throw new InvalidCursorError(after);
}

/**
 * Reads one page of each database or shard, in parallel. One that fails is tried again by the next page, from where it was. Those that fail
 * alone make no next page, so that a loop over pages ends: to continue with them, ask again with the same `after`.
 *
 * @param sources no two begin with the same shard
 * @throws InvalidCursorError `invalid-cursor` when `after` is not the `next` of a page
 */
export async function readPages<Source extends PageSource, Item>(
  sources: readonly Source[],
  after: string | undefined,
  read: (source: Source, after: string | undefined) => Promise<Page<Item>>,
): Promise<PartialPage<OfShards<Item>>> {
  const places = parsePlaces(after);
  const next: Record<string, string | null> = {};
  const failed = new Set<string>();
  const pages = await Promise.all(
    sources.map(async (source): Promise<Omit<PartialPage<OfShards<Item>>, 'next'>> => {
      const key = placeKey(source);
      const place = places[key];
      if (place !== undefined) next[key] = place;
      if (place === null) return { items: [], failures: [] };
      try {
        const page = await read(source, place);
        next[key] = page.next ?? null;
        const shards = shardTexts(source.shards);
        return { items: page.items.map((item) => ({ ...item, shards })), failures: [] };
      } catch (error) {
        if (isOfRequest(error)) throw error;
        failed.add(key);
        return { items: [], failures: [failureOf(source.shards, error)] };
      }
    }),
  );
  const isOver = Object.entries(next).every(([key, place]) => place === null || failed.has(key));
  return {
    items: pages.flatMap(({ items }) => items),
    next: isOver ? undefined : JSON.stringify(next),
    failures: pages.flatMap(({ failures }) => failures),
  };
}

const ofRequest: ReadonlySet<string> = new Set(['invalid-cursor', 'invalid-page-limit', 'operator-request']);

/** Whether the request is at fault, whatever the database. */
export function isOfRequest(error: unknown): boolean {
  return ofRequest.has(FrameworkError.find(error)?.code ?? '');
}
