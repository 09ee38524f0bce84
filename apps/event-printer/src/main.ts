import type { Reading } from './cloud-event.ts';
import { readFromNats } from './from-nats.ts';
import { readFromRabbitMq } from './from-rabbitmq.ts';
import { readFromRedis } from './from-redis.ts';

// Prints every event that the wallet service has relayed to a broker, and those that follow:
// main.ts nats://127.0.0.1:4222
const readers: Readonly<Record<string, (url: string, reading: Reading) => Promise<void>>> = {
  'nats:': readFromNats,
  'amqp:': readFromRabbitMq,
  'redis:': readFromRedis,
};

const [, , url = ''] = process.argv;
const read = readers[URL.parse(url)?.protocol ?? ''];
if (read === undefined) {
  console.error(`Pass the URL of a broker, such as nats://127.0.0.1:4222, instead of '${url}'`);
  process.exitCode = 1;
} else {
  const { host } = new URL(url);
  await read(url, { onReading: () => console.log(`Reading from ${host}`), onEvent: print });
}

function print({ type, subject, data, ...extensions }: Parameters<Reading['onEvent']>[0]): void {
  const model = `${String(extensions['modelname'])} ${subject}`;
  console.log(`${type} of ${model}, version ${String(extensions['modelversion'])}: ${JSON.stringify(data)}`);
}
