import { ShardIdentifier, systemClock } from '@framework/core';
import { PgRepository } from '@framework/drizzle-adapter';
import { route, uuidField } from '@framework/http';
import type { ServiceDefinition } from '@framework/service';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { IncreaseCounterAction, OpenCounterAction } from './counter-actions.ts';
import { Counter } from './counter.ts';
import { counters } from './counters-table.ts';

const shard = ShardIdentifier.of(0, 0);
const path = z.object({ id: uuidField });
const increase = z.strictObject({ by: z.int().min(1).max(1_000) });
const answer = z.object({ id: uuidField, value: z.int() }).meta({ id: 'Counter' });
const versioned = { model: Counter, answer, versioned: true } as const;

function replyOf({ id, value, version }: Counter) {
  return { body: { id: id.value, value }, resource: { address: `/counters/${id.value}`, version } };
}

const openCounter = route.post(
  '/counters',
  { ...versioned, summary: 'Open a counter', action: OpenCounterAction, answers: { 201: 'It is open' } },
  async ({ execute }) => ({ ...replyOf(await execute(OpenCounterAction, { shard })), status: 201 }),
);
const increaseCounter = route.post(
  '/counters/{id}/increase',
  { ...versioned, summary: 'Increase a counter', action: IncreaseCounterAction, path, body: increase },
  async ({ path: { id }, body: { by }, execute, idOf }) =>
    replyOf(await execute(IncreaseCounterAction, { id: idOf(Counter, id), by })),
);

/** The counters as a service. */
export const counterService: ServiceDefinition = {
  name: 'counter',
  migrationsFolder: fileURLToPath(new URL('../migrations', import.meta.url)),
  compose: ({ databases }) => {
    const repository = new PgRepository({ model: Counter, table: counters, databases });
    const actions = [new OpenCounterAction(systemClock), new IncreaseCounterAction(systemClock, repository)];
    return { repositories: [repository], actions };
  },
  http: { info: { title: 'Counters', version: '1.0.0' }, routes: [openCounter, increaseCounter] },
};
