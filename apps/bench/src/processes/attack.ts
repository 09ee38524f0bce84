import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import type { Attack, AttackReport } from '../attacks/attacking-process.js';

const { url, kind, path, token } = JSON.parse(process.argv[2] ?? '') as Attack;
const port = url === undefined ? await listenHere() : Number(new URL(url).port);
const answers: Record<string, number> = {};
let connections = 0;

/** How many connections are slow, and from how many addresses. */
const slowCount = 2_000;
const slowAddresses = 20;
/** How long a slow client waits before it sends its next byte, in milliseconds. */
const byteIntervalMs = 1_000;
/** The rate of a flood, and its connections. */
const floodPerSecond = 1_000;
const floodConnections = 64;
const tickMs = 10;
/** How long a client waits before it connects again, in milliseconds. */
const reconnectMs = 1_000;
const body = '{"amount":"25.50"}';
const deposit = `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nauthorization: Bearer ${token}\r\n\r\n${body}`;

process.on('message', send);
process.on('disconnect', () => process.exit());
await (kind === 'slow' ? slow() : flood());
send();

/** A server to attack that has nothing to do with the measured service. */
async function listenHere(): Promise<number> {
  const server = createServer((_request, response) => response.writeHead(429).end());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** Opens a connection, and opens another one whenever it ends. */
function stay(localAddress: string, use: (socket: Socket) => void): Promise<void> {
  return new Promise((resolve) => {
    const open = (): void => {
      const socket = connect({ host: '127.0.0.1', port, localAddress, noDelay: true });
      socket.once('connect', () => {
        connections += 1;
        use(socket);
        resolve();
      });
      socket.on('error', () => undefined);
      socket.on('end', () => socket.destroy());
      socket.on('close', () => setTimeout(open, reconnectMs));
    };
    open();
  });
}

/** Thirds of the clients send headers and bodies one byte at a time, and do not read their answers. */
async function slow(): Promise<void> {
  const sending = new Set<Socket>();
  for (let index = 0; index < slowCount; index++) {
    await stay(`127.0.1.${1 + (index % slowAddresses)}`, (socket) => {
      socket.once('data', (data: Buffer) => countAnswers(data));
      if (index % 3 === 2) {
        socket.pause();
        socket.write('GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: x\r\n\r\n');
        return;
      }
      socket.write(
        index % 3 === 0
          ? 'GET /health/live HTTP/1.1\r\nhost: x\r\nx: '
          : `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer ${token}\r\ncontent-length: 1000\r\n\r\n`,
      );
      sending.add(socket);
      socket.once('close', () => sending.delete(socket));
    });
  }
  void sendSlowly(sending);
}

/** Spreads the bytes over the interval. */
async function sendSlowly(sending: ReadonlySet<Socket>): Promise<void> {
  const ticks = byteIntervalMs / tickMs;
  for (let tick = 0; ; tick = (tick + 1) % ticks) {
    let index = 0;
    for (const socket of sending) if (index++ % ticks === tick) socket.write('x');
    await pause(tickMs);
  }
}

/** Sends deposits at a fixed rate, from one address or, as one principal, from one address for each connection. */
async function flood(): Promise<void> {
  const sockets = new Set<Socket>();
  for (let index = 0; index < floodConnections; index++) {
    await stay(kind === 'address' ? '127.0.1.1' : `127.0.1.${1 + index}`, (socket) => {
      socket.on('data', countAnswers);
      sockets.add(socket);
      socket.once('close', () => sockets.delete(socket));
    });
  }
  void sendAtRate(sockets);
}

async function sendAtRate(sockets: ReadonlySet<Socket>): Promise<void> {
  let sentCount = 0;
  for (const startedAtMs = performance.now(); ; await pause(tickMs)) {
    const dueCount = ((performance.now() - startedAtMs) / 1_000) * floodPerSecond;
    // A socket whose buffer is full would keep in memory what the service does not read.
    const ready = [...sockets].filter(({ writableNeedDrain }) => !writableNeedDrain);
    for (; sentCount < dueCount; sentCount++) ready[sentCount % ready.length]?.write(deposit);
  }
}

function countAnswers(data: Buffer): void {
  for (const [, status = ''] of data.toString('latin1').matchAll(/HTTP\/1\.1 (\d{3}) /g))
    answers[status] = (answers[status] ?? 0) + 1;
}

function send(): void {
  const report: AttackReport = { connections, answers };
  process.send?.(report);
}
