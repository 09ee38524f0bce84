import { type Reader, cloudEventOf } from './cloud-event.ts';
import { readFromNats } from './from-nats.ts';
import { readFromRabbitMq } from './from-rabbitmq.ts';
import { readFromRedis } from './from-redis.ts';

// Prints every event that the wallet service has relayed to a broker, and those that follow:
// main.ts nats://127.0.0.1:4222
// Ends with the exit code 1 when the connection has ended.
const readers: Readonly<Record<string, Reader>> = {
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
  await read(url, { onReading, onMessage: print }).catch((error: NodeJS.ErrnoException) => {
    // Node tries several addresses, and then its error has only a code.
    console.error(`Reading from ${host} has ended: ${error.message || error.code}`);
    // A client may still have timers or a socket.
    process.exit(1);
  });
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
