import type { FrameworkConfig } from '@framework/core';
import type { OperatedApplication } from '@framework/operator';
import { describeRelays } from '@framework/relay/config';

import { composeWalletService } from './composition.js';
import { walletExtension } from './operator/wallet-extension.js';
import { publishedEvents } from './published-events.js';
import { walletApi } from './wallet-app.js';

/** The service as the command line sees it: `framework.operator.module` names this module. It neither delivers nor migrates. */
export default function operatedService(config: FrameworkConfig): OperatedApplication {
  const service = composeWalletService({ ...config, migrate: 'check' }, { delivers: false });
  const documents = {
    openapi: async () => walletApi(service).openApi(),
    asyncapi: () => publishedEvents(config.namespace, describeRelays(config)),
  };
  return { databases: service.databases, extensions: [walletExtension(service.databases), { documents }] };
}
