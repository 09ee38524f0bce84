import {
  ActionExecutor,
  ConfigurationError,
  type DatabaseRegistry,
  type FrameworkConfig,
  InvariantViolationError,
  type RetryPolicy,
  openDatabases,
} from '@framework/core';
import type { Observer } from '@framework/core/adapter';
import { type PostgresWarning, postgres } from '@framework/drizzle-adapter';
import {
  type AnyEventHandler,
  Delivery,
  type DeliveryOptions,
  EventHandlerRegistry,
  defaultDeliverySettings,
  notifyOfCommits,
  parseDeliverySettings,
} from '@framework/events';
import { Authentication } from '@framework/http/security';
import type { Relay } from '@framework/relay';

import { commandsOf } from './service-command.js';
import type {
  Application,
  Service,
  ServiceDefinition,
  ServiceDescription,
  ServiceParts,
} from './service-definition.js';
import { namesOf } from './service-names.js';
import { parseSections } from './settings/service-config.js';

/** How a process differs from one that does everything with the defaults. */
export interface OpenServiceOptions {
  /** Whether it delivers events. If not, it notifies the delivering processes of its commits. Default true. */
  readonly delivers?: boolean;
  /** Whether a process that delivers has the application's own handlers. Default true. */
  readonly handles?: boolean;
  /** Handlers besides the application's own; they must be the same in all delivering processes. Default: none. */
  readonly handlers?: readonly AnyEventHandler[];
  /** What publishes the events to brokers, in a process that delivers. The caller closes their brokers. Default: none. */
  readonly relays?: readonly Relay[];
  /** What to change in the executor's policy for attempts. Default: nothing. */
  readonly retry?: Partial<RetryPolicy> | undefined;
  /** How long delivery waits for handlers when it stops, in milliseconds, even if the configuration allows more. */
  readonly stopTimeoutMaxMs?: number;
  /** What a delivery reports. Default: nothing is reported. */
  readonly deliveryHooks?: DeliveryHooks;
  /** Called when the keys of tokens cannot be read, once for each reason. */
  readonly onKeysFailure?: (error: unknown) => void;
  /** Traces and measures executions and the calls of handlers. Default: none. */
  readonly observer?: Observer;
  /** Called with what operators should know about the databases. */
  readonly onDatabaseWarning?: (warning: PostgresWarning) => void;
  /** Opens the databases, once the configuration is known to be valid. Default: those of PostgreSQL. */
  readonly openDatabases?: (config: FrameworkConfig) => DatabaseRegistry;
}

/** What a delivery reports. */
export type DeliveryHooks = Pick<
  DeliveryOptions,
  'onError' | 'onRecovered' | 'onAttemptFailed' | 'onLeaseLost' | 'onRestartNeeded'
>;

/**
 * Composes an application, with databases, an executor and a delivery. It does not wait for the databases, and delivers nothing until
 * its delivery is started.
 *
 * @throws ConfigurationError `invalid-configuration` when the configuration has a mistake
 */
export function openService<A extends Application>(
  definition: ServiceDefinition<A>,
  config: FrameworkConfig,
  options: OpenServiceOptions = {},
): Service<A> {
  const { security } = parseSections(definition, config);
  const settings = { ...defaultDeliverySettings, ...parseDeliverySettings(config.delivery) };
  const databases = (options.openDatabases ?? postgresOf(definition, options))(config);
  try {
    const application = checked(definition.compose({ config, databases }));
    refuseNamesOfParts(application);
    const { handlers: own = [] } = application;
    const { delivers = true, handles = true, handlers = [], relays = [], observer } = options;
    refuseNamesOfHandlers([...own, ...handlers], relays);
    const executor = new ActionExecutor({
      namespace: config.namespace,
      groupCommit: config.groupCommit,
      databases,
      repositories: application.repositories,
      actions: application.actions,
      requirePolicies: application.requirePolicies ?? false,
      ...(options.retry && { retry: options.retry }),
      ...(observer && { observer }),
    });
    const around = { databases, executor, ...options.deliveryHooks };
    const stopTimeoutMs = Math.min(settings.stopTimeoutMs, options.stopTimeoutMaxMs ?? Infinity);
    const delivery = delivers
      ? new Delivery({
          ...around,
          ...(observer && { observer }),
          handlers: [...(handles ? own : []), ...handlers, ...relays],
          settings: { ...settings, stopTimeoutMs },
        })
      : notificationsOnly(around);
    const { service: realm } = namesOf(definition);
    return {
      ...application,
      namespace: config.namespace,
      databases,
      executor,
      delivery,
      relays: relays.map((relay) => ({
        name: relay.name,
        aliases: relay.aliases,
        state: () => (delivers ? relay.state : undefined),
        wants: relay.wants,
        publishAgain: relay.publishAgain.bind(relay),
      })),
      authentication:
        security.jwt && new Authentication(security.jwt, { realm, onKeysFailure: options.onKeysFailure }),
    };
  } catch (error) {
    void databases.close();
    throw error;
  }
}

/** What plain JavaScript may return. */
function checked<A extends Application>(application: A): A {
  const { actions, repositories } = (application as Partial<A> | undefined) ?? {};
  if (actions !== undefined && repositories !== undefined) return application;
  // An application that is a promise may still reject.
  Promise.resolve(application).catch(() => undefined);
  throw new InvariantViolationError(
    'compose must return repositories and actions, and not a promise of them: it must not wait for databases',
  );
}

/** What the framework adds to an application, and what would therefore be replaced. */
const partNames = ['namespace', 'databases', 'executor', 'delivery', 'relays', 'authentication'];

function refuseNamesOfParts(application: Application): void {
  const name = partNames.find((each) => each in application);
  if (name === undefined) return;
  const message = `compose returns ${name}, but the service has a part of its own with that name: choose another one`;
  throw new InvariantViolationError(message);
}

function postgresOf(
  definition: ServiceDescription,
  { onDatabaseWarning }: OpenServiceOptions,
): (config: FrameworkConfig) => DatabaseRegistry {
  const { migrationsFolder } = definition;
  return ({ sharding, migrate }) =>
    openDatabases(
      sharding,
      postgres({
        migrate,
        ...(migrationsFolder !== undefined && { migrationsFolder }),
        commands: commandsOf(definition),
        applicationName: namesOf(definition).service,
        ...(onDatabaseWarning && { onWarning: onDatabaseWarning }),
      }),
    );
}

/**
 * Refuses relays with the name of a handler, also in a process without that handler: both would have the same place in the log, and
 * what one of them has passed would never reach the other.
 */
function refuseNamesOfHandlers(handlers: readonly AnyEventHandler[], relays: readonly Relay[]): void {
  const own = new EventHandlerRegistry(handlers).handlers;
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
): ServiceParts['delivery'] {
  const end = notifyOfCommits(options);
  return {
    start: () => undefined,
    started: async () => [],
    startedOn: (shard) => options.databases.readyOn(shard),
    stop: async () => end(),
    restartNeed: undefined,
  };
}
