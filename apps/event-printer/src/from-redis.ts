import { createClient } from 'redis';

import { type Reading, walletEvents } from './cloud-event.ts';

const waitMs = 5_000;

/**
 * Reads a Redis stream from its first entry on.
 *
 * @throws Error with the reason when it cannot connect, or its connection has ended
 */
export async function readFromRedis(url: string, { onReading, onMessage }: Reading): Promise<never> {
  const socket = { reconnectStrategy: false, socketTimeout: 2 * waitMs } as const;
  const client = createClient({ url, socket });
  // The call that waits for an answer throws it as well.
  client.on('error', () => undefined);
  await client.connect();
  onReading();
  let after = '0';
  for (;;) {
    const answers = await client.xRead({ key: walletEvents, id: after }, { BLOCK: waitMs, COUNT: 100 });
    for (const { messages } of (answers ?? []) as readonly StreamAnswer[]) {
      for (const { id, message } of messages) {
        const { data = '', ...attributes } = message;
        onMessage(attributes, data);
        after = id;
      }
    }
  }
}

interface StreamAnswer {
  readonly messages: readonly {
    readonly id: string;
    readonly message: Readonly<Record<string, string>>;
  }[];
}
