import { ShardIdentifier } from '@framework/core';
import { type HonoAppOptions, honoApp } from '../src/hono.js';
import { HttpApi, type HttpApiOptions } from '../src/index.js';

/** The shard of the service in tests. */
export const shard = ShardIdentifier.of(0, 0);

/** An HTTP layer without databases: it has one shard. */
export function testApi(options: Partial<HttpApiOptions> = {}): HttpApi {
  return new HttpApi({
    name: 'orders',
    info: { title: 'Orders', version: '1.0.0' },
    routes: [],
    databases: { shards: [shard] },
    ...options,
  });
}

/** Sends requests to an HTTP layer with Hono, without a server. */
export function clientOf(
  api: HttpApi,
  options: HonoAppOptions = {},
): (path: string, init?: RequestInit) => Promise<Response> {
  const app = honoApp(api, options);
  return async (path, init) => {
    const request = new Request(`http://localhost${path}`, init);
    const bytes = new Uint8Array(await request.clone().arrayBuffer());
    return app.fetch(request, {
      body: { isAnnounced: bytes.length > 0, read: async () => bytes },
      client: { address: '192.0.2.1' },
    });
  };
}
