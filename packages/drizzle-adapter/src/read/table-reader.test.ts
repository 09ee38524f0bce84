import { Tag } from '@framework/conformance';
import { pgTable } from 'drizzle-orm/pg-core';
import type pg from 'pg';
import { expect, test } from 'vitest';

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

// The OIDs of a boolean, bytes, a bigint, a date, an interval, JSON and an array of numbers: what the driver would parse.
test.each([16, 17, 20, 1082, 1186, 114, 1231])(
  'a read leaves a value of the type %d as text',
  async (type) => {
    expect(new Set(await read(type, '12'))).toEqual(new Set(['12']));
  },
);
