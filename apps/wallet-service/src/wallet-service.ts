import type { ReadyService, ServiceDefinition } from '@framework/service';
import { fileURLToPath } from 'node:url';

import { type WalletApplication, composeWallets } from './composition.js';
import { demo } from './demo.js';
import { publishedEvents } from './published-events.js';
import { transferRoutes } from './routes/transfer-routes.js';
import { walletChangeRoutes } from './routes/wallet-change-routes.js';
import { walletProblems } from './routes/wallet-problems.js';
import { walletRoutes } from './routes/wallet-routes.js';
import { securitySchema } from './security/wallet-access.js';
import { httpSchema } from './wallet/amount-limits.js';
import { placementOf } from './wallet/placement.js';

/** The service, as `runService` starts it. Files are at the same depth in `src` as in the bundle. */
export const walletService = {
  name: 'wallet',
  compose: composeWallets,
  http: {
    info: {
      title: 'Wallet service',
      version: '0.1.0',
      description:
        'Wallets on sharded databases. Decimals are exact: strings in answers, strings or numbers in requests. ' +
        'Send an Idempotency-Key with every write, and repeat it with the same key when its outcome is unknown.',
    },
    problems: walletProblems,
    routes: (service) => [...walletRoutes(service), ...walletChangeRoutes, ...transferRoutes(service)],
    example,
  },
  events: publishedEvents,
  sections: { http: httpSchema, security: securitySchema },
  migrationsFolder: fileURLToPath(new URL('../migrations', import.meta.url)),
  // The service never changes decisions or notifications, and never reads notifications.
  tables: {
    wallets: ['select', 'insert', 'update'],
    transfers: ['select', 'insert', 'update'],
    transfer_decisions: ['select', 'insert'],
    notifications: ['insert'],
  },
  commands: {
    migrate: '`npm run migrate`',
    doctor: 'npm run framework -- doctor',
    adopt: (shards) =>
      `\`npm run adopt -- ${shards.map(({ group, member }) => `${group}/${member}`).join(' ')}\``,
  },
  embedded: {
    folder: fileURLToPath(new URL('../../../.data/postgres', import.meta.url)),
    groups: ['global', 'mexico'],
    // In the bundle.
    operatorModule: fileURLToPath(new URL('operator-module.js', import.meta.url)),
  },
  demo,
} satisfies ServiceDefinition<WalletApplication>;

/** Opens a wallet on a shard that is ready. */
function example({ url, needsToken, shards }: ReadyService): string | undefined {
  const country = ['MX', 'US'].find((each) => shards.includes(placementOf(each)));
  if (country === undefined) return undefined;
  const wallet = {
    country,
    ownerId: '7c9e6679-7425-40de-944b-e07fc1f90ae7',
    currency: country === 'MX' ? 'MXN' : 'USD',
    initialBalance: '100.00',
  };
  const token = needsToken ? ` -H "Authorization: Bearer $TOKEN"` : '';
  return `curl ${url}/wallets${token} -H 'Content-Type: application/json' -d '${JSON.stringify(wallet)}'`;
}
