import { type Reading, cloudEventOf } from './cloud-event.ts';
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
  // The URL itself is not shown, because it may contain a password.
  console.error(
    'Pass the URL of a broker: nats://127.0.0.1:4222, or one that begins with amqp:// or redis://',
  );
  process.exitCode = 1;
} else {
  const { host } = new URL(url);
  const onReading = (): void => console.log(`Reading from ${host}`);
  await read(url, { onReading, onMessage: print, onError }).catch((error: Error) => {
    onError(error);
    process.exitCode = 1;
  });
}

function onError({ message }: Error): void {
  console.error(message);
}

/** Prints an event. Anybody can publish something else to a broker: that is passed over. */
function print(attributes: Readonly<Record<string, string>>, body: string): void {
  try {
    const { type, subject, data, ...extensions } = cloudEventOf(attributes, body);
    const model = `${String(extensions['modelname'])} ${subject}`;
    console.log(
      `${type} of ${model}, version ${String(extensions['modelversion'])}: ${JSON.stringify(data)}`,
    );
  } catch (error) {
    console.error(`Passed over a message that is no event: ${String(error)}`);
  }
}
