import { ConfigurationError, type FrameworkConfig, FrameworkError, openDatabases } from '@framework/core';
import { postgres } from '@framework/drizzle-adapter';
import type { OperatedApplication, OperatorModule } from '@framework/operator';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

import type { Terminal } from '../terminal.js';

const path = 'framework.operator.module';
/** How long the application's module may take, in milliseconds: it loads the whole application, which asks no database yet. */
const openingDefaultMs = 60_000;

/**
 * The application that the configuration names for its operators, or its databases alone if it names none. Nothing is migrated, whatever
 * the configuration says.
 *
 * @param file the configuration file, to which the path of the module is relative
 * @param openingMaxMs how long the module may take. Default 60,000
 * @throws ConfigurationError `invalid-configuration` when the module cannot be used
 */
export async function openApplication(
  given: FrameworkConfig,
  file: string,
  terminal: Terminal,
  openingMaxMs: number = openingDefaultMs,
): Promise<OperatedApplication> {
  const config: FrameworkConfig = { ...given, migrate: 'check' };
  const name = moduleName(config);
  if (name !== undefined) return openedBy(name, dirname(resolve(file)), config, openingMaxMs);
  const databases = openDatabases(
    config.sharding,
    postgres({
      migrate: config.migrate,
      applicationName: 'framework command line',
      commands: { migrate: '`framework migrate up`' },
      // Why a database is not ready is told with the answer.
      onWarning: ({ kind, message }) =>
        kind !== 'not-ready' && !isAboutTimeout(kind) && terminal.progress(`warning: ${message}`),
    }),
  );
  return { databases, extensions: [] };
}

/**
 * Whether a warning compares the role's timeout with that of a database, which is not the service's here, but at most what the command may
 * take. The doctor compares it with that of the service.
 */
export function isAboutTimeout(code: string | undefined): boolean {
  return code === 'pooler-settings';
}

/** The module that the configuration names; `undefined` when it names none. */
export function moduleName({ operator }: Pick<FrameworkConfig, 'operator'>): string | undefined {
  const { module } = operator;
  if (module === undefined) return undefined;
  if (typeof module === 'string' && module !== '') return module;
  throw new ConfigurationError([{ path, message: 'must be the name of a module' }]);
}

async function openedBy(
  name: string,
  folder: string,
  config: FrameworkConfig,
  maxMs: number,
): Promise<OperatedApplication> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(refused(`${name} was not ready within ${maxMs} ms`)), maxMs);
  try {
    return await Promise.race([openIn(name, folder, config), late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

async function openIn(name: string, folder: string, config: FrameworkConfig): Promise<OperatedApplication> {
  const { default: open } = await imported(name, folder);
  if (typeof open !== 'function')
    throw refused(`${name} exports no function by default: see OperatorModule of @framework/operator`);
  let opened: unknown;
  try {
    opened = await (open as OperatorModule)(config);
  } catch (cause) {
    if (FrameworkError.find(cause) !== undefined) throw cause;
    throw refused(`${name} has failed (${messageOf(cause)})`, cause);
  }
  if (isApplication(opened)) return opened;
  throw refused(`${name} returns no databases and extensions: see OperatorModule of @framework/operator`);
}

function isApplication(opened: unknown): opened is OperatedApplication {
  const { databases, extensions } = (opened ?? {}) as Partial<OperatedApplication>;
  return typeof databases?.deliveries === 'function' && Array.isArray(extensions);
}

async function imported(name: string, folder: string): Promise<{ readonly default?: unknown }> {
  try {
    return (await import(addressOf(name, folder))) as { readonly default?: unknown };
  } catch (cause) {
    throw refused(`${name} cannot be imported (${messageOf(cause)})`, cause);
  }
}

/** A file beside the configuration; otherwise a package that is installed there, where the command runs, or beside the command line. */
function addressOf(name: string, folder: string): string {
  const asFile = resolve(folder, name);
  if (/^\.{0,2}\//.test(name) || existsSync(asFile)) return pathToFileURL(asFile).href;
  try {
    const paths = [folder, process.cwd()];
    return pathToFileURL(createRequire(import.meta.url).resolve(name, { paths })).href;
  } catch {
    return name;
  }
}

function messageOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

function refused(message: string, cause?: unknown): ConfigurationError {
  return new ConfigurationError([{ path, message }], { cause });
}
