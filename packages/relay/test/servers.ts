import { once } from 'node:events';
import { connect } from 'node:net';

/**
 * A broker's server: the one that the environment names, otherwise what answers on the standard port of this machine, otherwise
 * the one that `start` starts.
 *
 * @returns `undefined` when there is none, after writing a line that says how to provide one
 * @throws Error when there is none, although `RELAY_BROKERS` is `required`
 */
export async function brokerServer(
  name: string,
  variable: string,
  url: string,
  start?: () => Promise<URL | undefined>,
): Promise<URL | undefined> {
  const named = process.env[variable];
  const standard = new URL(url);
  if (named !== undefined) return new URL(named.includes('://') ? named : `${standard.protocol}//${named}`);
  if (await answers(standard)) return standard;
  const started = await start?.();
  if (started !== undefined) return started;
  const missing = `No ${name}: start it on port ${standard.port}, or set ${variable}`;
  if (process.env['RELAY_BROKERS'] === 'required') throw new Error(missing);
  process.stderr.write(`${missing}; its tests are skipped\n`);
  return undefined;
}

async function answers({ hostname, port }: URL): Promise<boolean> {
  const socket = connect({ host: hostname, port: Number(port) });
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
