import { ConfigurationError } from '@framework/core';
import { notReadyError } from '@framework/drizzle-adapter/operation';

import { type ListedDatabase, databasesOf, loadConfig } from '../loaded-config.js';
import type { Terminal } from '../terminal.js';
import { configFindings, faultFindings } from './config-checks.js';
import { databaseFindings } from './database-checks.js';
import { type DatabaseFacts, type InspectOptions, inspect } from './database-facts.js';
import { type Finding, type FindingName, finding } from './finding.js';
import { type FleetOptions, fleetFindings } from './fleet-checks.js';

/** How a service is examined. */
export interface ExamineOptions extends InspectOptions, FleetOptions {
  readonly configFile: string;
}

/** What a database is, or why it could not be looked at. */
interface ExaminedDatabase {
  readonly where: string;
  readonly path: string;
  readonly reachable: boolean;
  readonly serverVersion: string | undefined;
}

/** What an examination found, in the order of the configuration. */
export interface Examination {
  readonly databases: readonly ExaminedDatabase[];
  readonly findings: readonly Finding[];
}

/** Examines the configuration, then all of its databases at once. Reports what unreachable databases leave unknown. */
export async function examine(
  options: ExamineOptions,
  environment: NodeJS.ProcessEnv,
  terminal: Terminal,
): Promise<Examination> {
  try {
    const config = await loadConfig(options.configFile, environment, terminal);
    const listed = databasesOf(config);
    const own = await configFindings(config, listed, environment);
    const looks = await Promise.all(listed.map((database) => look(database, options, terminal)));
    const seen = looks.flatMap(({ database, facts }) => (facts === undefined ? [] : [{ database, facts }]));
    const inEach = looks.flatMap(({ database, facts, failure }) => [
      ...(failure === undefined ? [] : [failure]),
      ...(facts === undefined ? [] : databaseFindings(database, facts, config)),
    ]);
    const databases = looks.map(({ database, facts }) => ({
      where: database.where,
      path: database.config.path,
      reachable: facts !== undefined,
      serverVersion: facts?.versionText,
    }));
    return { databases, findings: [...own, ...inEach, ...fleetFindings(seen, config, options)] };
  } catch (error) {
    if (!(error instanceof ConfigurationError)) throw error;
    return { databases: [], findings: faultFindings(error) };
  }
}

interface Look {
  readonly database: ListedDatabase;
  readonly facts?: DatabaseFacts;
  readonly failure?: Finding;
}

async function look(database: ListedDatabase, options: InspectOptions, terminal: Terminal): Promise<Look> {
  terminal.progress(`querying ${database.where} …`);
  try {
    return { database, facts: await inspect(database.config, options) };
  } catch (error) {
    if (error instanceof ConfigurationError) throw error;
    return { database, failure: failureOf(database, error) };
  }
}

/** The findings for the reasons why a database is not ready; all others mean that it cannot be asked now. */
const failureNames: Readonly<Record<string, FindingName>> = {
  'access-refused': 'access-refused',
  'database-missing': 'database-missing',
  'tls-refused': 'tls-refused',
  'in-recovery': 'standby-address',
  'read-only': 'read-only',
  'migration-failed': 'configuration-invalid',
};

function failureOf({ config, where }: ListedDatabase, error: unknown): Finding {
  const { kind, message } = notReadyError(error, config);
  return finding(failureNames[kind] ?? 'database-unreachable', where, message);
}
