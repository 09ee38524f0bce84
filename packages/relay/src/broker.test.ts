import { expect, test } from 'vitest';

import type { Broker } from './index.js';
import { nats } from './nats.js';
import { rabbitmq } from './rabbitmq.js';
import { webhooks } from './webhooks.js';

const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;

const brokers: readonly (readonly [string, Broker])[] = [
  ['NATS', nats({ servers: ['127.0.0.1:1'], stream: 'none' })],
  ['RabbitMQ', rabbitmq({ url: 'amqp://127.0.0.1:1', exchange: 'none' })],
  ['a webhook', webhooks({ url: 'http://127.0.0.1:1', secret })],
];

test.each(brokers)(
  '%s takes only as many messages at once as can be confirmed one after the other in a call',
  (_name, { limits }) => {
    const slowestMs = 300;
    expect((limits?.messagesMax ?? 1_000) * slowestMs).toBeLessThanOrEqual(limits?.timeoutMs ?? 30_000);
  },
);
