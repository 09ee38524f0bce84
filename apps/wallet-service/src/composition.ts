import {
  ActionExecutor,
  ConfigurationError,
  type DatabaseRegistry,
  type FrameworkConfig,
  type Repository,
  type RetryPolicy,
  type ShardIdentifier,
  openDatabases,
  systemClock,
} from '@framework/core';
import type { ModelMapper, Observer } from '@framework/core/adapter';
import { PgRepository, type PostgresWarning, postgres } from '@framework/drizzle-adapter';
import {
  type AnyEventHandler,
  type AttemptFailureHook,
  Delivery,
  EventHandlerRegistry,
  type LeaseLossHook,
  type RestartHook,
  defaultDeliverySettings,
  notifyOfCommits,
  parseDeliverySettings,
} from '@framework/events';
import { Authentication } from '@framework/http/security';
import type { Relay } from '@framework/relay';

import { parseHttpSettings } from './http/http-settings.js';
import { notifications } from './notification/notifications-table.js';
import {
  Notification,
  NotifyRecipientAction,
  NotifyRecipientOnDeposit,
} from './notification/notify-recipient.js';
import { migrationsFolder, operatorCommands } from './operator-command.js';
import { securitySettings } from './security/security-settings.js';
import { WalletAccess, handlersOnly } from './security/wallet-access.js';
import { InitiateTransferAction } from './transfer/initiate-transfer-action.js';
import { TransferDecision } from './transfer/transfer-decision.js';
import {
  CompleteTransferAction,
  ReceiveTransfer,
  RefundTransfer,
  RefundTransferAction,
  SettleTransfer,
  SettleTransferAction,
} from './transfer/transfer-saga.js';
import { Transfer } from './transfer/transfer.js';
import { transferDecisions, transfers } from './transfer/transfer-tables.js';
import { WalletTransferAction } from './transfer/wallet-transfer-action.js';
import { AmountLimits } from './wallet/amount-limits.js';
import { WalletCloseAction } from './wallet/wallet-close-action.js';
import { WalletCreateAction } from './wallet/wallet-create-action.js';
import { WalletDepositMoneyAction } from './wallet/wallet-deposit-money-action.js';
import { PgWalletRepository, type WalletRepository } from './wallet/wallet-repository.js';
import { WalletWithdrawMoneyAction } from './wallet/wallet-withdraw-money-action.js';
import type { WalletService } from './wallet-service.js';

/** How a process differs from one that does everything with the defaults. */
export interface CompositionOptions {
  /** Whether it delivers events. If not, it notifies the delivering processes of its commits. Default true. */
  readonly delivers?: boolean;
  /** Whether a process that delivers has the service's own handlers. Default true. */
  readonly handles?: boolean;
  /** Handlers besides the service's own; they must be the same in all delivering processes. */
  readonly handlers?: readonly AnyEventHandler[];
  /** What publishes the events to brokers, in a process that delivers. The caller closes their brokers. Default: none. */
  readonly relays?: readonly Relay[];
  readonly retry?: Partial<RetryPolicy>;
  /** How long delivery waits for handlers when it stops, even if the configuration allows more. */
  readonly stopTimeoutMaxMs?: number;
  readonly onDeliveryError?: (error: unknown, shards: readonly ShardIdentifier[]) => void;
  readonly onDeliveryRecovered?: (shards: readonly ShardIdentifier[]) => void;
  readonly onAttemptFailed?: AttemptFailureHook;
  readonly onLeaseLost?: LeaseLossHook;
  readonly onRestartNeeded?: RestartHook;
  /** Called when the keys of tokens cannot be read, once for each reason. */
  readonly onKeysFailure?: (error: unknown) => void;
  /** Traces and measures executions and the calls of handlers. Default: nobody does. */
  readonly observer?: Observer;
  /** Called with what operators should know about the databases. */
  readonly onDatabaseWarning?: (warning: PostgresWarning) => void;
}

/** The databases of the service, and a repository for each of its models. */
export interface WalletStorage {
  readonly databases: DatabaseRegistry;
  readonly wallets: WalletRepository & ModelMapper;
  readonly transfers: Repository<Transfer> & ModelMapper;
  readonly decisions: Repository<TransferDecision> & ModelMapper;
  readonly notifications: ModelMapper;
}

/**
 * Composes the wallet service on PostgreSQL. It does not wait for databases.
 *
 * @throws ConfigurationError `invalid-configuration` when the configuration has a mistake
 */
export function composeWalletService(
  config: FrameworkConfig,
  options: CompositionOptions = {},
): WalletService {
  return composeOn(() => openPostgres(config, options.onDatabaseWarning), config, options);
}

function openPostgres(
  config: FrameworkConfig,
  onWarning?: (warning: PostgresWarning) => void,
): WalletStorage {
  const databases = openDatabases(
    config.sharding,
    postgres({
      migrate: config.migrate,
      migrationsFolder,
      commands: operatorCommands,
      applicationName: 'wallet-service',
      ...(onWarning && { onWarning }),
    }),
  );
  return {
    databases,
    wallets: new PgWalletRepository(databases),
    transfers: new PgRepository({ model: Transfer, table: transfers, databases }),
    decisions: new PgRepository({ model: TransferDecision, table: transferDecisions, databases }),
    notifications: new PgRepository({ model: Notification, table: notifications, databases }),
  };
}

/** Composes the wallet service on a storage, which it opens once the configuration is known to be valid; throws like {@link composeWalletService}. */
export function composeOn(
  openStorage: () => WalletStorage,
  config: FrameworkConfig,
  options: CompositionOptions = {},
): WalletService {
  refuseNamesOfHandlers(options.relays ?? []);
  const security = securitySettings(config);
  const { amounts } = parseHttpSettings(config.http).limits;
  const settings = { ...defaultDeliverySettings, ...parseDeliverySettings(config.delivery) };
  const { databases, wallets, transfers: sent, decisions, notifications: notified } = openStorage();
  const access = new WalletAccess(wallets, security);
  const limits = new AmountLimits(amounts, wallets);
  const executor = new ActionExecutor({
    ...(options.retry && { retry: options.retry }),
    namespace: config.namespace,
    groupCommit: config.groupCommit,
    databases,
    repositories: [wallets, sent, decisions, notified],
    requirePolicies: true,
    ...(options.observer && { observer: options.observer }),
    actions: [
      new WalletCreateAction(systemClock, limits.opening(access.opening)),
      new WalletDepositMoneyAction(systemClock, wallets, limits.moving(access.owning)),
      new WalletWithdrawMoneyAction(systemClock, wallets, limits.moving(access.owning)),
      new WalletCloseAction(systemClock, wallets, access.closing),
      new WalletTransferAction(systemClock, wallets, limits.sending(access.sending)),
      new InitiateTransferAction(systemClock, wallets, databases, limits.sending(access.sending)),
      new CompleteTransferAction(systemClock, wallets, decisions, handlersOnly),
      new SettleTransferAction(systemClock, sent, handlersOnly),
      new RefundTransferAction(systemClock, wallets, sent, handlersOnly),
      new NotifyRecipientAction(systemClock, handlersOnly),
    ],
  });
  const { delivers = true, handles = true, handlers = [], relays = [] } = options;
  const { onDeliveryError, stopTimeoutMaxMs = Infinity } = options;
  const around = { databases, executor, ...(onDeliveryError && { onError: onDeliveryError }) };
  const stopTimeoutMs = Math.min(settings.stopTimeoutMs, stopTimeoutMaxMs);
  const delivery = delivers
    ? new Delivery({
        ...around,
        ...(options.observer && { observer: options.observer }),
        ...(options.onDeliveryRecovered && { onRecovered: options.onDeliveryRecovered }),
        ...(options.onAttemptFailed && { onAttemptFailed: options.onAttemptFailed }),
        ...(options.onLeaseLost && { onLeaseLost: options.onLeaseLost }),
        ...(options.onRestartNeeded && { onRestartNeeded: options.onRestartNeeded }),
        handlers: [...(handles ? ownHandlers : []), ...handlers, ...relays],
        settings: { ...settings, stopTimeoutMs },
      })
    : notificationsOnly(around);
  const served = relays.map((relay) => ({
    name: relay.name,
    aliases: relay.aliases,
    state: () => (delivers ? relay.state : undefined),
    wants: relay.wants,
    publishAgain: relay.publishAgain.bind(relay),
  }));
  return {
    namespace: config.namespace,
    databases,
    wallets,
    transfers: sent,
    executor,
    delivery,
    relays: served,
    access,
    authentication:
      security.jwt &&
      new Authentication(security.jwt, { realm: 'wallet-service', onKeysFailure: options.onKeysFailure }),
  };
}

/** The service's own handlers, which keep nothing between calls. */
const ownHandlers: readonly AnyEventHandler[] = [
  new ReceiveTransfer(),
  new SettleTransfer(),
  new RefundTransfer(),
  new NotifyRecipientOnDeposit(),
];

/**
 * Refuses relays with the name of a handler, also in a process without that handler: both would have the same place in the log, and
 * what one of them has passed would never reach the other.
 */
function refuseNamesOfHandlers(relays: readonly Relay[]): void {
  const own = new EventHandlerRegistry(ownHandlers).handlers;
  const taken = new Set(own.flatMap(({ name, options }) => [name, ...(options.aliases ?? [])]));
  const faults = relays.flatMap(({ name, aliases }, index) =>
    [name, ...aliases]
      .filter((each) => taken.has(each))
      .map((each) => ({
        path: `framework.relay[${index}]`,
        message: `the name ${each} belongs to a handler of the service: choose another one`,
      })),
  );
  if (faults.length > 0) throw new ConfigurationError(faults);
}

/** Used in place of a delivery: wakes the delivery of other processes. */
function notificationsOnly(
  options: Parameters<typeof notifyOfCommits>[0] & { readonly databases: DatabaseRegistry },
): WalletService['delivery'] {
  const end = notifyOfCommits(options);
  return {
    start: () => undefined,
    started: async () => [],
    startedOn: (shard) => options.databases.readyOn(shard),
    stop: async () => end(),
    restartNeed: undefined,
  };
}
