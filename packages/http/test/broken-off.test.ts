import { getRequestListener } from '@hono/node-server';
import Fastify from 'fastify';
import { once } from 'node:events';
import { type Server, createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, test, vi } from 'vitest';
import * as z from 'zod';

import { httpPlugin } from '../src/fastify.js';
import { honoApp } from '../src/hono.js';
import { type HttpApi, RequestLog, route } from '../src/index.js';
import { ClientAddresses, httpSchema } from '../src/security/index.js';
import { HttpServer } from '../src/server/index.js';
import { testApi } from './test-api.js';

let end: (() => unknown) | undefined;
afterEach(() => end?.());

async function listening(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  end = () => server.close();
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const servers: Readonly<Record<string, (api: HttpApi) => Promise<string>>> = {
  'the server of the package': async (api) => {
    const { limits } = httpSchema.parse({});
    const clients = new ClientAddresses({ trustedProxies: [], unlimited: limits.unlimitedAddresses });
    const app = honoApp(api);
    const server = await HttpServer.listen(
      {
        fetch: (webRequest, exchange) => app.fetch(webRequest, exchange),
        refuse: (error) => api.refuse(error).response,
        describe: () => new Response(),
      },
      { host: '127.0.0.1', port: 0, limits, clients },
    );
    end = () => server.close();
    return server.url;
  },
  '@hono/node-server': (api) => {
    const listener = getRequestListener(honoApp(api).fetch);
    return listening(createServer((incoming, response) => void listener(incoming, response)));
  },
  Fastify: async (api) => {
    const app = Fastify();
    await app.register(httpPlugin(api));
    end = () => app.close();
    return app.listen({ port: 0, host: '127.0.0.1' });
  },
};

test.each(Object.keys(servers))(
  'an answer whose stream fails is broken off and logged, and shows nothing of the error: %s',
  async (name) => {
    const lines: object[] = [];
    const write = (fields: object) => void lines.push(fields);
    const printed = vi.spyOn(console, 'error').mockImplementation(() => undefined);
    const parts = ['first,', undefined];
    const report = route.get(
      '/report',
      { summary: 'Report', answer: z.string(), mediaType: 'text/csv' },
      () =>
        new Response(
          new ReadableStream({
            pull(controller) {
              const part = parts.shift();
              if (part === undefined) throw new Error('the password is mellon');
              controller.enqueue(Buffer.from(part));
            },
          }),
          { headers: { 'content-type': 'text/csv' } },
        ),
    );
    const log = new RequestLog({ debug: () => undefined, info: write, warn: write, error: write });
    const url = await servers[name]!(testApi({ routes: [report], log }));
    const sent = request(`${url}/report`).end();
    const [answer] = await once(sent, 'response').catch(() => []);
    let text = '';
    answer?.on('data', (chunk: Buffer) => (text += chunk.toString()));
    if (answer !== undefined) await once(answer, 'close').catch(() => undefined);
    expect(answer?.complete ?? false).toBe(false);
    expect(text).not.toContain('mellon');
    expect(lines).toMatchObject([{ path: '/report', status: 500, stack: expect.stringContaining('mellon') }]);
    expect(printed).not.toHaveBeenCalled();
  },
);
