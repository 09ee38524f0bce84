import { HttpApi, decimalField, healthRoutes, requestIdHeader, route, uuidField } from '@framework/http';
import { honoApp } from '@framework/http/hono';
import { ClientAddresses, httpSchema } from '@framework/http/security';
import { HttpServer } from '@framework/http/server';
import { serve } from '@hono/node-server';
import { Big } from 'big.js';
import { Hono } from 'hono';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import * as z from 'zod';

// One of two servers that answer the same request, without a database: a route of Hono that validates with zod, or a route of an
// HttpApi behind the listener. Sends its port when it listens, and its processor time on request.

const address = '/wallets/{id}/deposit';
const resource = (id: string, amount: Big) => ({
  id,
  ownerId: '7c9e6679-7425-40de-944b-e07fc1f90ae7',
  currency: 'MXN',
  balance: amount.toFixed(),
  state: 'OPEN',
  version: 2,
});

async function serveBare(): Promise<number> {
  const body = z.strictObject({
    amount: z.union([z.string(), z.number()]).transform((each) => new Big(each)),
  });
  const params = z.object({ id: z.uuid() });
  const app = new Hono();
  app.post('/wallets/:id/deposit', async (context) => {
    const { amount } = body.parse(await context.req.json());
    const { id } = params.parse(context.req.param());
    return context.json(resource(id, amount));
  });
  const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

async function serveApi(): Promise<number> {
  const deposit = route.post(
    address,
    {
      summary: 'Deposit',
      path: z.object({ id: uuidField }),
      body: z.strictObject({ amount: decimalField((text) => new Big(text)) }),
      answer: z.object({ id: z.string() }),
      versioned: true,
    },
    async ({ path: { id }, body: { amount } }) => ({
      body: resource(id, amount),
      resource: { address: `/wallets/${id}`, version: 2 },
    }),
  );
  const databases = { shards: [], status: async () => [] };
  const api = new HttpApi({
    name: 'bench',
    info: { title: 'Bench', version: '1' },
    routes: [deposit, ...healthRoutes({ databases })],
  });
  const { limits } = httpSchema.parse({});
  const app = honoApp(api);
  const server = await HttpServer.listen(
    {
      fetch: (request, exchange) => app.fetch(request, exchange),
      refuse: (error) => api.refuse(error).response,
      describe: () => new Response(null, { headers: { [requestIdHeader]: randomUUID() } }),
    },
    {
      host: '127.0.0.1',
      port: 0,
      limits,
      clients: new ClientAddresses({ trustedProxies: [], unlimited: limits.unlimitedAddresses }),
    },
  );
  return Number(new URL(server.url).port);
}

const port = process.argv[2] === 'bare' ? await serveBare() : await serveApi();
process.on('message', () => {
  const { user, system } = process.cpuUsage();
  process.send?.({ cpuMs: (user + system) / 1_000 });
});
process.send?.({ port });
