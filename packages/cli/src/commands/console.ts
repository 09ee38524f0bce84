import { ConfigurationError, type FrameworkConfig } from '@framework/core';
import { readFile } from 'node:fs/promises';
import * as z from 'zod';

import { type CommandGroup, withCommonOptions, fileOf, formatOf } from '../command-group.js';
import { UsageError, exitCode } from '../exit-code.js';
import { loadConfig } from '../loaded-config.js';
import type { Terminal } from '../terminal.js';

/** What the command reads of the section `framework.operator`; the service validates the rest. */
const listenerSchema = z.object({
  host: z.string().default('127.0.0.1'),
  port: z.int().min(0).max(65_535).optional(),
  token: z.string().optional(),
  tokenFile: z.string().optional(),
});

/** `framework console`: says where the service listens for its operators, and whether it answers. */
export const consoleCommand: CommandGroup = (program, { environment, terminal, end }) => {
  withCommonOptions(
    program
      .command('console')
      .description("say where the service's console is, and whether it answers; opens nothing"),
  ).action(async (options) => {
    const config = await loadConfig(fileOf(options), environment, terminal);
    const { host, port, token, tokenFile } = listenerOf(config);
    if (port === undefined)
      throw new UsageError('the service does not listen for operators: set framework.operator.port');
    if (port === 0)
      throw new UsageError('framework.operator.port is 0, so the log of each process says where it listens');
    const url = `http://${host.includes(':') ? `[${host}]` : host}:${port}`;
    const secret = token ?? (tokenFile === undefined ? '' : await textIn(tokenFile, terminal));
    const state = await stateOf(url, secret, options.timeoutMs);
    const answer = { url: state.hasConsole ? `${url}/console/` : url, ...state };
    if (formatOf(options, terminal) === 'json') terminal.writeJson(answer);
    else {
      terminal.write(answer.url);
      terminal.write(isLoopback(host) ? `From elsewhere: ssh -L ${port}:${host}:${port} <this machine>` : '');
      terminal.write('It asks for the token of framework.operator.');
    }
    if (state.reason !== null) terminal.fail(`error: ${url}: ${state.reason}`);
    end(state.reason === null ? exitCode.fine : exitCode.failed);
  });
};

function listenerOf({ operator }: Pick<FrameworkConfig, 'operator'>): z.output<typeof listenerSchema> {
  const { data, error } = listenerSchema.safeParse(operator);
  if (error === undefined) return data;
  throw new ConfigurationError(
    error.issues.map(({ path, message }) => ({
      path: ['framework.operator', ...path.map(String)].join('.'),
      message,
    })),
  );
}

async function textIn(file: string, terminal: Terminal): Promise<string> {
  try {
    const text = (await readFile(file, 'utf8')).trim();
    terminal.hide(text);
    return text;
  } catch (error) {
    const message = `cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown error'})`;
    throw new ConfigurationError([{ path: 'framework.operator.token-file', message }], { cause: error });
  }
}

/** What the listener answers. */
interface ListenerState {
  readonly answers: boolean;
  /** Whether it serves the console beside the API. */
  readonly hasConsole: boolean;
  /** Whether it refuses changes; null if it does not answer. */
  readonly readOnly: boolean | null;
  /** What is wrong, if anything. */
  readonly reason: string | null;
}

async function stateOf(url: string, token: string, timeoutMs: number): Promise<ListenerState> {
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    const [about, page] = await Promise.all([
      fetch(`${url}/about`, { headers: { authorization: `Bearer ${token}` }, signal, redirect: 'manual' }),
      fetch(`${url}/console/`, { signal, redirect: 'manual' }),
    ]);
    const hasConsole = page.status === 200;
    await page.body?.cancel();
    if (about.status !== 200) {
      await about.body?.cancel();
      const reason =
        about.status === 401 ? 'it refuses the token' : `it answers with the status ${about.status}`;
      return { answers: true, hasConsole, readOnly: null, reason };
    }
    const { readOnly } = z.object({ readOnly: z.boolean() }).parse(await about.json());
    return { answers: true, hasConsole, readOnly, reason: null };
  } catch (error) {
    return { answers: false, hasConsole: false, readOnly: null, reason: reasonOf(error, timeoutMs) };
  }
}

function reasonOf(error: unknown, timeoutMs: number): string {
  if (!(error instanceof Error)) return String(error);
  if (error.name === 'TimeoutError') return `it has not answered within ${timeoutMs} ms`;
  const { code } = (error.cause ?? {}) as NodeJS.ErrnoException;
  return `it does not answer (${code ?? error.message})`;
}

function isLoopback(host: string): boolean {
  return /^(127\.|localhost$|::1$)/.test(host);
}
