import { type DatabaseRegistry, openDatabases, parseFrameworkConfig } from '@framework/core';
import { RequestBody, ShardCapacity } from '@framework/http';
import { RateLimits } from '@framework/http/security';
import { type CompositionContext, openService } from '@framework/service';
import { MemoryRepository, MemoryServer, memory } from '@framework/testing/memory';
import { TestDatabase } from '@framework/testing/postgres';
import { Readable } from 'node:stream';
import { inspect } from 'node:util';
import { pino } from 'pino';

import { logOptions } from '../../../packages/service/src/log/log-format.js';
import { serviceApi, serviceApp } from '../../../packages/service/src/service-api.js';
import { parseSections } from '../../../packages/service/src/settings/service-config.js';
import { type WalletService, type WalletStorage, composeOn } from '../src/composition.js';
import { Notification } from '../src/notification/notify-recipient.js';
import { TransferDecision } from '../src/transfer/transfer-decision.js';
import { Transfer } from '../src/transfer/transfer.js';
import type { WalletRepository } from '../src/wallet/wallet-repository.js';
import { Wallet } from '../src/wallet/wallet.js';
import { walletService } from '../src/wallet-service.js';
import { type TestServiceOptions, configTree } from './start-test-service.js';
import { WalletClient } from './wallet-client.js';

/** The HTTP layer and the actions of the wallet service on two shards in memory, without a server and without delivery. */
export interface MemoryService {
  readonly client: WalletClient;
  readonly service: WalletService;
  /** The lines that the service has logged so far. */
  readonly log: readonly string[];
  /** All rows, keys and commits of both shards, as a text that changes whenever something is written. */
  readonly contents: () => string;
}

class MemoryWalletRepository extends MemoryRepository<Wallet> implements WalletRepository {
  readonly findPageByOwner: WalletRepository['findPageByOwner'] = (ownerId, page) =>
    this.findPage({ where: (wallet) => wallet.ownerId === ownerId, ...page });
}

/** What the configuration needs, although nothing connects to them. */
const nowhere = 'postgres://user:secret@127.0.0.1:1/';
const addresses = {
  global: new TestDatabase(nowhere, 'global'),
  mexico: new TestDatabase(nowhere, 'mexico'),
};

const storageOn = (databases: DatabaseRegistry): WalletStorage => ({
  databases,
  wallets: new MemoryWalletRepository({ model: Wallet, databases }),
  transfers: new MemoryRepository({ model: Transfer, databases }),
  decisions: new MemoryRepository({ model: TransferDecision, databases }),
  notifications: new MemoryRepository({ model: Notification, databases }),
});

export function memoryService(
  options: Pick<TestServiceOptions, 'security' | 'http' | 'groupCommit' | 'retry'> = {},
): MemoryService {
  const config = parseFrameworkConfig(configTree(addresses, { ...options, login: 'owner' }));
  const server = new MemoryServer(config.sharding);
  const definition = {
    ...walletService,
    compose: ({ databases }: CompositionContext) => composeOn(storageOn(databases), config),
  };
  const { retry } = options;
  const service = openService(definition, config, {
    delivers: false,
    retry,
    openDatabases: ({ sharding }) => openDatabases(sharding, memory({ server })),
  });
  const log: string[] = [];
  const { limits } = parseSections(walletService, config).http;
  const api = serviceApi(walletService, service, {
    logger: pino({ ...logOptions, level: 'debug' }, { write: (line) => log.push(line) }),
    rates: new RateLimits(limits),
    capacity: new ShardCapacity(limits.requestsPerShardMax),
  });
  const app = serviceApp(api);
  const send: typeof fetch = async (input, init) => {
    const request = new Request(input, init);
    const bytes = Buffer.from(await request.clone().arrayBuffer());
    const headers = { ...Object.fromEntries(request.headers), 'content-length': String(bytes.length) };
    const incoming = Object.assign(Readable.from(bytes.length > 0 ? [bytes] : []), { headers });
    return app.fetch(request, {
      body: new RequestBody(incoming as ConstructorParameters<typeof RequestBody>[0], limits.bodyBytesMax),
      client: { address: '127.0.0.1', isLimited: false },
      pause: () => undefined,
    });
  };
  const contents = (): string => {
    const snapshots = server.databases.map((tables) => tables.snapshot());
    const stored = snapshots.map(({ rows, keys, commits }) => ({ rows, keys, commits }));
    return inspect(stored, { depth: Infinity, maxArrayLength: Infinity, maxStringLength: Infinity });
  };
  return { client: new WalletClient('http://localhost', send), service, log, contents };
}
