import { Tag } from '@framework/conformance';
import { pgTable } from 'drizzle-orm/pg-core';
import type pg from 'pg';
import { describe, expect, test } from 'vitest';

import type { Connection } from '../connection/connection.js';
import { entityColumns } from '../model-columns.js';
import { TableReader } from './table-reader.js';

const tags = pgTable('tags', entityColumns(Tag));

/** How the driver parses each column of a read: by id, by several ids, and by a condition. */
async function parsersOfReads(): Promise<readonly pg.CustomTypesConfig[]> {
  const queries: pg.QueryConfig[] = [];
  const connection = {
    query: (query: pg.QueryConfig) => {
      queries.push(query);
      return Promise.resolve({ rows: [] });
    },
  } as unknown as Connection;
  const reader = new TableReader(tags);
  await reader.byId(connection, 'a');
  await reader.bySeveralIds(connection, ['a', 'b']);
  await reader.count(connection, undefined);
  expect(queries).toHaveLength(3);
  return queries.flatMap(({ types }) => (types === undefined ? [] : [types]));
}

/** What each way to read makes of a text of the server. */
async function read(type: number, value: string): Promise<readonly unknown[]> {
  const parsers = await parsersOfReads();
  expect(parsers).toHaveLength(3);
  return parsers.map((parser) => {
    const parserOf: (oid: number, format: 'text') => (text: string) => unknown = parser.getTypeParser;
    return parserOf(type, 'text')(value);
  });
}

describe('a read', () => {
  // The OIDs of each type and of its array, as in the catalog pg_type of every server.
  test.each([
    ['date', 1082, 1182, '2026-02-03'],
    ['timestamp', 1114, 1115, '2026-02-03 04:05:06.789012'],
    ['timestamptz', 1184, 1185, '2026-02-03 04:05:06.789012+00'],
    ['interval', 1186, 1187, '1 day 02:03:04.5'],
    ['numeric', 1700, 1231, '12345678901234567890.123456789'],
    ['json', 114, 199, '"12"'],
    ['jsonb', 3802, 3807, '"12"'],
    ['uuid', 2950, undefined, '01900000-0000-7000-8000-000000000001'],
    ['bigint', 20, undefined, '9007199254740993'],
    ['time', 1083, undefined, '04:05:06.789012'],
    ['text', 25, undefined, '12'],
  ])('leaves a value and an array of the type %s as text', async (_name, type, arrayType, value) => {
    expect(new Set(await read(type, value))).toEqual(new Set([value]));
    if (arrayType === undefined) return;
    const array = JSON.stringify([value, value]).replace(/^\[(.*)\]$/, '{$1}');
    expect(new Set(await read(arrayType, array))).toEqual(new Set([array]));
  });

  test('gets other types as the driver parses them', async () => {
    expect(new Set(await read(16, 't'))).toEqual(new Set([true]));
    expect(new Set(await read(23, '12'))).toEqual(new Set([12]));
    expect(await read(1016, '{9007199254740993}')).toContainEqual(['9007199254740993']);
  });
});
