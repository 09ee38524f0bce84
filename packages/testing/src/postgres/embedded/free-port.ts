import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';

/** A TCP port of 127.0.0.1 that was free a moment ago; another process may take it before it is used. */
export async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}
