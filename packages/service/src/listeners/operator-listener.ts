import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import { errorReason, parseSection } from '@framework/http';
import { Draining } from '@framework/http/server';
import { Operator } from '@framework/operator';
import { type ConsoleFiles, operatorApp, operatorTokenMin } from '@framework/operator/http';
import { createAdaptorServer } from '@hono/node-server';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import type { Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import type { Logger } from 'pino';
import * as z from 'zod';

import type { Application, ServiceParts } from '../service-definition.js';
import { logMessages } from '../log/log-messages.js';

const port = 'must be a whole number from 0 to 65535';
const token = `must be a text of at least ${operatorTokenMin} characters, such as that of \`openssl rand -hex 32\``;

/** The section `framework.operator`. Without a port, nothing listens. */
export const operatorSchema = z
  .strictObject({
    host: z.string().min(1).default('127.0.0.1'),
    port: z.int(port).min(0, port).max(65_535, port).optional(),
    token: z.string(token).min(operatorTokenMin, token).optional(),
    tokenFile: z.string().min(1, 'is empty: name a file').optional(),
    readOnly: z.boolean('must be true or false').default(true),
    /** Whether a page for operators is served under `/console/`, if `@framework/console` is installed. */
    console: z.boolean('must be true or false').default(true),
    /** For the command line, which imports it; the service knows itself. */
    module: z.string().min(1, 'is empty: name a module').optional(),
  })
  .refine(
    (section) =>
      section.port === undefined || (section.token === undefined) !== (section.tokenFile === undefined),
    {
      error: 'needs either token or token-file',
    },
  );

/** A listener for operators. */
export interface OperatorListener {
  /** Its address, for example `http://127.0.0.1:9090`. */
  readonly url: string;
  /** The page for operators, for example `http://127.0.0.1:9090/console/`; `undefined` when it is not served. */
  readonly consoleUrl: string | undefined;
  /**
   * Stops accepting connections, drops incomplete requests, and resolves when running ones are answered. A client has 2 s to read what
   * was written.
   */
  readonly close: () => Promise<void>;
}

/** How long a client may take to send a request, in milliseconds. */
const requestTimeoutMs = 10_000;
const connectionsMax = 64;
/** @throws ConfigurationError `invalid-configuration` when the section has a mistake */
export function operatorSettings({
  operator,
}: Pick<FrameworkConfig, 'operator'>): z.output<typeof operatorSchema> {
  return parseSection('operator', operatorSchema, operator);
}

/**
 * Serves the operator on a listener of its own, if the configuration has a port for it.
 *
 * @returns `undefined` when it has none
 * @throws ConfigurationError `invalid-configuration` when the section has a mistake, or the file of the token cannot be used
 * @throws the system's error when it cannot listen
 */
export async function listenForOperators(
  { operator: section }: Pick<FrameworkConfig, 'operator'>,
  {
    databases,
    relays,
    extensions = [],
  }: Pick<ServiceParts, 'databases' | 'relays'> & Pick<Application, 'extensions'>,
  { logger }: { readonly logger: Logger },
): Promise<OperatorListener | undefined> {
  const settings = operatorSettings({ operator: section });
  if (settings.port === undefined) return undefined;
  const operator = new Operator({
    databases,
    extensions,
    relays,
  });
  const hasConsole = settings.console && isConsoleInstalled();
  const closing = new AbortController();
  const app = operatorApp(operator, {
    token: settings.token ?? (await tokenIn(settings.tokenFile ?? '')),
    readOnly: settings.readOnly,
    console: hasConsole ? readConsoleFiles : undefined,
    closing: closing.signal,
    onError: (error) => logger.warn({ reason: errorReason(error) }, logMessages.operatorRefused),
  });
  const server = createAdaptorServer({
    fetch: app.fetch,
    serverOptions: { requestTimeout: requestTimeoutMs, headersTimeout: requestTimeoutMs },
  }) as Server;
  const draining = new Draining(server);
  server.maxConnections = connectionsMax;
  server.listen(settings.port, settings.host);
  await once(server, 'listening');
  const address = server.address() as AddressInfo;
  const host = address.family === 'IPv6' ? `[${address.address}]` : address.address;
  const url = `http://${host}:${address.port}`;
  logger.info({ url, readOnly: settings.readOnly }, logMessages.operatorsServed);
  return {
    url,
    consoleUrl: hasConsole ? `${url}/console/` : undefined,
    close: () => {
      closing.abort();
      return draining.close();
    },
  };
}

/** Whether `@framework/console` is installed, which an application may do without. */
function isConsoleInstalled(): boolean {
  try {
    return createRequire(import.meta.url).resolve('@framework/console') !== '';
  } catch {
    return false;
  }
}

/** Loaded when somebody opens the page. */
async function readConsoleFiles(): Promise<ConsoleFiles> {
  const { readConsole } = await import('@framework/console');
  return readConsole();
}

async function tokenIn(file: string): Promise<string> {
  const path = 'framework.operator.token-file';
  let text: string;
  try {
    text = (await readFile(file, 'utf8')).trim();
  } catch (cause) {
    const message = `cannot be read (${(cause as NodeJS.ErrnoException).code ?? errorReason(cause)})`;
    throw new ConfigurationError([{ path, message }], { cause });
  }
  if (text.length >= operatorTokenMin) return text;
  throw new ConfigurationError([{ path, message: `names a file whose text ${token}` }]);
}
