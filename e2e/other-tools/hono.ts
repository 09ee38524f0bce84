import { ShardIdentifier, ShardedId } from '@framework/core';
import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import { IncreaseCounterAction, OpenCounterAction } from '../counter/counter-actions.ts';
import { Counter } from '../counter/counter.ts';
import { databases, executor, problemOf, ready } from './app.ts';

const principal = { name: 'reader' };
const app = new Hono();

app.post('/counters', async (context) => {
  const { id } = await executor.execute(principal, OpenCounterAction, { shard: ShardIdentifier.of(0, 0) });
  return context.json({ id: id.value }, 201);
});

app.post('/counters/:id', async (context) => {
  const id = ShardedId.of(Counter, context.req.param('id'));
  const { by } = await context.req.json<{ by: number }>();
  const { value } = await executor.execute(principal, IncreaseCounterAction, { id, by });
  return context.json({ value });
});

app.onError((error, context) => {
  const { status, code } = problemOf(error);
  return context.json({ code }, status as ContentfulStatusCode);
});

await ready();
const server = serve({ fetch: app.fetch, port: Number(process.env['PORT']) });
process.once('SIGTERM', () => server.close(() => void databases.close()));
