import { ShardIdentifier, ShardedId } from '@framework/core';
import Fastify from 'fastify';
import { IncreaseCounterAction, OpenCounterAction } from '../counter/counter-actions.ts';
import { Counter } from '../counter/counter.ts';
import { databases, executor, problemOf, ready } from './app.ts';

const principal = { name: 'reader' };
const app = Fastify();

app.post('/counters', async (_request, reply) => {
  const { id } = await executor.execute(principal, OpenCounterAction, { shard: ShardIdentifier.of(0, 0) });
  return reply.code(201).send({ id: id.value });
});

app.post<{ Params: { id: string }; Body: { by: number } }>('/counters/:id', async ({ params, body }) => {
  const id = ShardedId.of(Counter, params.id);
  const { value } = await executor.execute(principal, IncreaseCounterAction, { id, by: body.by });
  return { value };
});

app.setErrorHandler((error, _request, reply) => {
  const { status, code } = problemOf(error);
  return reply.code(status).send({ code });
});

app.addHook('onClose', () => databases.close());
await ready();
await app.listen({ port: Number(process.env['PORT']) });
process.once('SIGTERM', () => void app.close());
