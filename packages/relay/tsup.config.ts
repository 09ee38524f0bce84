import { defineConfig } from 'tsup';
import { packageBuild } from '../../tsup.base.js';

export default defineConfig({
  ...packageBuild,
  entry: [
    'src/index.ts',
    'src/asyncapi.ts',
    'src/inbox/index.ts',
    'src/kafka.ts',
    'src/nats.ts',
    'src/rabbitmq.ts',
    'src/redis.ts',
    'src/relay-config.ts',
    'src/webhooks.ts',
  ],
});
