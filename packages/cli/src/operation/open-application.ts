import { ConfigurationError, type FrameworkConfig, openDatabases } from '@framework/core';
import { postgres } from '@framework/drizzle-adapter';
import type { OperatedApplication, OperatorModule } from '@framework/operator';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

import type { Terminal } from '../terminal.js';

const path = 'framework.operator.module';

/**
 * The application that the configuration names for its operators, or its databases alone if it names none. Nothing is migrated, whatever
 * the configuration says.
 *
 * @param file the configuration file, to which the path of the module is relative
 * @throws ConfigurationError `invalid-configuration` when the module cannot be used
 */
export async function openApplication(
  given: FrameworkConfig,
  file: string,
  terminal: Terminal,
): Promise<OperatedApplication> {
  const config: FrameworkConfig = { ...given, migrate: 'check' };
  const name = moduleName(config);
  if (name !== undefined) return (await moduleIn(name, dirname(resolve(file))))(config);
  const databases = openDatabases(
    config.sharding,
    postgres({
      migrate: config.migrate,
      applicationName: 'framework command line',
      commands: { migrate: '`framework migrate up`' },
      // Why a database is not ready is told with the answer.
      onWarning: ({ kind, message }) => kind !== 'not-ready' && terminal.progress(`warning: ${message}`),
    }),
  );
  return { databases, extensions: [] };
}

/** The module that the configuration names; `undefined` when it names none. */
export function moduleName({ operator }: Pick<FrameworkConfig, 'operator'>): string | undefined {
  const { module } = operator;
  if (module === undefined) return undefined;
  if (typeof module === 'string' && module !== '') return module;
  throw new ConfigurationError([{ path, message: 'must be the name of a module' }]);
}

async function moduleIn(name: string, folder: string): Promise<OperatorModule> {
  const { default: open } = await imported(name, folder);
  if (typeof open === 'function') return open as OperatorModule;
  throw refused(`${name} exports no function by default: see OperatorModule of @framework/operator`);
}

async function imported(name: string, folder: string): Promise<{ readonly default?: unknown }> {
  try {
    return (await import(addressOf(name, folder))) as { readonly default?: unknown };
  } catch (cause) {
    throw refused(
      `${name} cannot be imported (${cause instanceof Error ? cause.message : String(cause)})`,
      cause,
    );
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

function refused(message: string, cause?: unknown): ConfigurationError {
  return new ConfigurationError([{ path, message }], { cause });
}
