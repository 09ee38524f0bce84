import type { FrameworkConfig } from '@framework/core';
import type { OperatedApplication } from '@framework/operator';
import { describeRelays } from '@framework/relay/config';
import pino from 'pino';

import { composeWalletService } from './composition.js';
import { parseHttpSettings } from './http/http-settings.js';
import { ShardCapacity } from './http/shard-capacity.js';
import { walletApp } from './http/wallet-app.js';
import { walletExtension } from './operator/wallet-extension.js';
import { publishedEvents } from './published-events.js';
import { RateLimits } from './security/rate-limits.js';

/** The service as the command line sees it: `framework.operator.module` names this module. It neither delivers nor migrates. */
export default function operatedService(config: FrameworkConfig): OperatedApplication {
  const service = composeWalletService({ ...config, migrate: 'check' }, { delivers: false });
  const documents = {
    openapi: async () => {
      const { limits } = parseHttpSettings(config.http);
      const app = walletApp(service, {
        logger: pino({ level: 'silent' }),
        docs: false,
        rates: new RateLimits(limits, undefined),
        capacity: new ShardCapacity(limits.requestsPerShardMax),
      });
      return (await (await app.request('/openapi.json')).json()) as object;
    },
    asyncapi: () => publishedEvents(config.namespace, describeRelays(config)),
  };
  return { databases: service.databases, extensions: [walletExtension(service.databases), { documents }] };
}
