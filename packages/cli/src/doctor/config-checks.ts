import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import { type ConfigurationIssue, kebabCasePath, unknownKeys } from '@framework/core/adapter';
import { type DeliveryOverrides, defaultDeliverySettings, parseDeliverySettings } from '@framework/events';
import { relayKeys } from '@framework/relay/config';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';

import type { ListedDatabase } from '../loaded-config.js';
import { type Finding, finding } from './finding.js';

/** The wait beyond `statement-timeout-ms` after which a client gives up. */
const clientGraceMs = 1_000;
/** The time of a request of the wallet service, if the file says nothing. */
const requestTimeoutDefaultMs = 30_000;

/** One finding per fault of a configuration that cannot be used. */
export function faultFindings({ faults }: ConfigurationError): readonly Finding[] {
  return faults.map(({ path, message }) =>
    finding(isUnknown(message) ? 'unknown-key' : 'configuration-invalid', path, message),
  );
}

function isUnknown(message: string): boolean {
  return /is not a known|unknown key|is not known/.test(message);
}

/** What the configuration alone says, without asking a server. */
export async function configFindings(
  config: FrameworkConfig,
  databases: readonly ListedDatabase[],
  environment: NodeJS.ProcessEnv,
): Promise<readonly Finding[]> {
  return [
    ...relayFaults(config),
    ...deliveryFindings(config, databases),
    ...securityFindings(config, environment),
    ...(await fileFindings(config)),
    ...databases.flatMap((database) => connectionFindings(config, database)),
  ];
}

/** A section of the application as a tree, whose contents the application has not checked here. */
function at(section: unknown, ...keys: readonly string[]): unknown {
  let here = section;
  for (const key of keys) {
    if (typeof here !== 'object' || here === null) return undefined;
    here = Object.entries(here).find(([name]) => name === key)?.[1];
  }
  return here;
}

function relayFaults({ relay }: FrameworkConfig): readonly Finding[] {
  const { error } = relayKeys.safeParse(relay, { reportInput: true });
  if (error === undefined) return [];
  const faults = error.issues.flatMap((issue): readonly ConfigurationIssue[] => {
    const path = ['framework', 'relay', ...issue.path];
    if (issue.code === 'unrecognized_keys') return unknownKeys(path, issue.keys);
    return [{ path: kebabCasePath(path), message: issue.input === undefined ? 'is missing' : issue.message }];
  });
  return faultFindings(new ConfigurationError(faults));
}

function deliveryFindings(
  { delivery }: FrameworkConfig,
  databases: readonly ListedDatabase[],
): readonly Finding[] {
  let given: DeliveryOverrides;
  try {
    given = parseDeliverySettings(delivery);
  } catch (error) {
    if (error instanceof ConfigurationError) return faultFindings(error);
    throw error;
  }
  const { leaseMs, timeoutMs } = { ...defaultDeliverySettings, ...given };
  return databases
    .filter(({ isPrimary }) => isPrimary)
    .flatMap(({ where, config: { statementTimeoutMs } }) => [
      ...(leaseMs < statementTimeoutMs
        ? [
            finding(
              'lease-short',
              where,
              `lease-ms is ${leaseMs}, statement-timeout-ms is ${statementTimeoutMs}`,
            ),
          ]
        : []),
      ...(timeoutMs <= statementTimeoutMs + clientGraceMs
        ? [
            finding(
              'handler-timeout',
              where,
              `timeout-ms is ${timeoutMs}, statement-timeout-ms is ${statementTimeoutMs}`,
            ),
          ]
        : []),
    ]);
}

function securityFindings(
  { security }: FrameworkConfig,
  { NODE_ENV }: NodeJS.ProcessEnv,
): readonly Finding[] {
  if (NODE_ENV !== 'production' || at(security, 'jwt') !== undefined) return [];
  return [
    finding('security-missing', 'framework.security.jwt', 'NODE_ENV is production, and nobody needs a token'),
  ];
}

async function fileFindings({ sharding, http, security }: FrameworkConfig): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  const jwksFile = at(security, 'jwt', 'jwksFile');
  const keysFault = typeof jwksFile === 'string' ? await keySetFault(jwksFile) : undefined;
  if (keysFault !== undefined)
    findings.push(finding('token-keys-unreadable', 'framework.security.jwt.jwks-file', keysFault));
  const files = ['certFile', 'keyFile'].map((key) => [
    `framework.http.tls.${kebabCasePath([key])}`,
    at(http, 'tls', key),
  ]);
  for (const { databases } of sharding.members)
    for (const { path, ssl } of databases.values())
      for (const key of ['caFile', 'certFile', 'keyFile'] as const)
        files.push([`${path}.ssl.${kebabCasePath([key])}`, ssl?.[key]]);
  for (const [path, file] of files) {
    if (typeof file !== 'string') continue;
    const fault = await readFile(file).then(() => undefined, readFault);
    if (fault !== undefined) findings.push(finding('file-unreadable', String(path), `${file} ${fault}`));
  }
  return findings;
}

function readFault(error: unknown): string {
  return `cannot be read (${error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'})`;
}

async function keySetFault(file: string): Promise<string | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    return `${file} ${readFault(error)}`;
  }
  try {
    return Array.isArray(at(JSON.parse(text), 'keys')) ? undefined : `${file} has no list of keys`;
  } catch {
    return `${file} is not JSON`;
  }
}

function connectionFindings(
  { http }: FrameworkConfig,
  { config, where }: ListedDatabase,
): readonly Finding[] {
  const findings: Finding[] = [];
  const url = new URL(config.address);
  const host = url.searchParams.get('host') ?? url.hostname;
  const mode = url.searchParams.get('sslmode') ?? url.searchParams.get('ssl') ?? 'disable';
  const isPlain =
    config.ssl === undefined ? ['disable', 'false', '0'].includes(mode) : config.ssl.mode === 'disable';
  if (isPlain && !isLocal(host))
    findings.push(finding('connection-unencrypted', config.path, `connections to ${host} use no TLS`));
  if (config.ssl?.mode === 'no-verify' || (config.ssl === undefined && mode === 'no-verify'))
    findings.push(
      finding('certificate-unverified', config.path, `the certificate of ${host} is not verified`),
    );
  const given = at(http, 'limits', 'requestTimeoutMs');
  const requestTimeoutMs = typeof given === 'number' ? given : requestTimeoutDefaultMs;
  if (config.acquisitionTimeoutMs >= requestTimeoutMs) {
    const found = `acquisition-timeout-ms is ${config.acquisitionTimeoutMs}, request-timeout-ms is ${requestTimeoutMs}`;
    findings.push(finding('acquisition-timeout', where, found));
  }
  return findings;
}

/** Whether connections stay on this machine: a loopback address or a Unix socket. */
function isLocal(host: string): boolean {
  const name = host.replace(/^\[|\]$/g, '').toLowerCase();
  if (name.startsWith('/') || decodeURIComponent(name).startsWith('/') || name === 'localhost') return true;
  return name === '::1' || (isIP(name) === 4 && name.startsWith('127.'));
}
