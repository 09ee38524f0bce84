import { createTestDatabase } from '@framework/testing/postgres';
import { EventEmitter, once } from 'node:events';
import { createServer } from 'node:net';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';

import { type HostProcess, runService } from '../src/run-service.js';
import type { ServedApi, ServiceDefinition } from '../src/service-definition.js';
import { configTree, helpDesk } from './help-desk.js';

const { http: _http, events: _events, ...withoutHttp } = helpDesk;

/** A program in this process, and what it has printed. */
class Program {
  stdout = '';
  stderr = '';
  readonly #signals = new EventEmitter();
  readonly #exited = Promise.withResolvers<unknown>();
  readonly #running: Promise<void>;
  readonly #host: { exitCode: unknown };

  constructor(definition: ServiceDefinition, environment: NodeJS.ProcessEnv, words: readonly string[] = []) {
    const host = {
      argv: ['node', 'main.js', ...words],
      env: { PORT: '0', ...environment },
      exitCode: 0,
      stdout: { on: () => undefined, write: (text: string) => void (this.stdout += text) },
      stderr: {
        on: () => undefined,
        writableLength: 0,
        write: (text: string, taken?: () => void) => {
          this.stderr += text;
          taken?.();
        },
      },
      on: (event: string, listener: () => void) => this.#signals.on(event, listener),
      exit: (code: number) => this.#exited.resolve(code),
    };
    this.#host = host;
    this.#running = runService(definition, host as unknown as HostProcess);
  }

  /** The exit code of a command or of a service that does not start. */
  async code(): Promise<unknown> {
    await this.#running;
    return Promise.race([this.#exited.promise, this.#host.exitCode]);
  }

  async printed(text: string): Promise<string> {
    await vi.waitUntil(() => (this.stdout + this.stderr).includes(text), { timeout: 30_000 });
    return this.stdout;
  }

  stop(): Promise<unknown> {
    this.#signals.emit('SIGTERM');
    return this.#exited.promise;
  }
}

async function fileOf(tree: unknown): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'run-service-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, 'desk.json');
  await writeFile(file, JSON.stringify(tree));
  return file;
}

async function databaseFile(sections?: object): Promise<string> {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  return fileOf(configTree(database.url, sections));
}

test('a service is configured by variables with its name, and ends at a signal', async () => {
  const HELP_DESK_CONFIG = await databaseFile();
  const program = new Program(helpDesk, { HELP_DESK_CONFIG });
  const text = await program.printed('The help-desk service is ready.');
  const url = /http:\/\/127\.0\.0\.1:\d+/.exec(text)?.[0] ?? '';
  expect((await fetch(`${url}/docs`)).status).toBe(200);
  expect(text).toMatch(/Access {3}everybody on this computer/);
  expect(await program.stop()).toBe(0);
  await expect(fetch(url)).rejects.toThrow('fetch failed');
});

test('an application without routes delivers, and listens nowhere', async () => {
  const HELP_DESK_CONFIG = await databaseFile();
  const program = new Program(withoutHttp, { HELP_DESK_CONFIG });
  expect(await program.printed('The help-desk service is ready.')).not.toContain('http://');
  expect(await program.stop()).toBe(0);
});

test('an application without routes refuses the role http', async () => {
  const HELP_DESK_CONFIG = await databaseFile();
  const program = new Program(withoutHttp, { HELP_DESK_CONFIG, HELP_DESK_ROLE: 'http' });
  await program.printed('HELP_DESK_ROLE: is http, but the application has no routes: choose another role');
  expect(await program.code()).toBe(1);
});

test.each([
  [
    { PORT: 'x', HELP_DESK_ROLE: 'y' },
    ['PORT: must be a whole number', 'HELP_DESK_ROLE: must be one of all'],
  ],
  [{ HELP_DESK_ROLE: 'worker' }, ['HELP_DESK_ROLE: worker shares', 'set HELP_DESK_CONFIG']],
  [
    { HELP_DESK_CONFIG: '/nowhere/desk.yaml' },
    ['HELP_DESK_CONFIG: /nowhere/desk.yaml cannot be read (ENOENT)'],
  ],
])('the environment %j is refused by the names of its variables', async (environment, texts) => {
  const program = new Program(helpDesk, environment);
  expect(await program.code()).toBe(1);
  for (const text of texts) expect(program.stderr).toContain(text);
});

test('the name of an application must be usable in variables and roles', async () => {
  const program = new Program({ ...helpDesk, name: 'Help Desk' }, {});
  expect(await program.code()).toBe(1);
  expect(program.stderr).toContain('name: must be up to 39 lower-case letters');
});

test('a wrong command prints those that the application has', async () => {
  const program = new Program(withoutHttp, {}, ['roles', 'constructor']);
  expect(await program.code()).toBe(1);
  expect(program.stderr).toContain('with HELP_DESK_CONFIG:\n  migrate ');
  expect(program.stderr).not.toContain('asyncapi');
});

test('the command migrate applies the migrations of the application', async () => {
  const HELP_DESK_CONFIG = await databaseFile();
  const program = new Program(helpDesk, { HELP_DESK_CONFIG }, ['migrate']);
  expect(await program.code()).toBe(0);
  expect(program.stdout).toContain('0000_tickets');
});

test('a mistake in the configuration ends the start with its path and its file', async () => {
  const HELP_DESK_CONFIG = await databaseFile({ http: { limits: { headersMax: 1 } } });
  const program = new Program(helpDesk, { HELP_DESK_CONFIG });
  expect(await program.code()).toBe(1);
  expect(program.stderr).toContain(`HELP_DESK_CONFIG=${HELP_DESK_CONFIG}`);
  expect(program.stderr).toMatch(/framework\.http\.limits\.headers-max: must be/);
});

test('a signal during the start waits until the service has started, and ends it in the normal way', async () => {
  const HELP_DESK_CONFIG = await databaseFile();
  const [listening, going] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const closed: string[] = [];
  const serve = async (): Promise<ServedApi> => {
    listening.resolve();
    await going.promise;
    return { url: 'http://127.0.0.1:1', close: async () => void closed.push('closed') };
  };
  const program = new Program({ ...helpDesk, http: { ...helpDesk.http, serve } }, { HELP_DESK_CONFIG });
  await listening.promise;
  const ended = program.stop();
  going.resolve();
  expect([await ended, closed]).toEqual([0, ['closed']]);
});

const fail = (): never => {
  throw new TypeError('something odd');
};

test('an example that throws is left out', async () => {
  const HELP_DESK_CONFIG = await databaseFile();
  const program = new Program(
    { ...helpDesk, http: { ...helpDesk.http, example: fail } },
    { HELP_DESK_CONFIG },
  );
  expect(await program.printed('is ready.')).not.toContain('Try');
  expect(await program.stop()).toBe(0);
});

test('an error that nobody expects is printed even if nothing is logged', async () => {
  const environment = { HELP_DESK_CONFIG: await databaseFile(), LOG_LEVEL: 'silent' };
  const program = new Program({ ...helpDesk, compose: fail }, environment);
  expect(await program.code()).toBe(1);
  expect(program.stderr).toContain('something odd');
});

test.each(['pg', 'pg-boss', 'framework'])('the name %s is refused, because others use it', async (name) => {
  const program = new Program({ ...helpDesk, name }, {});
  expect(await program.code()).toBe(1);
  expect(program.stderr).toContain('neither begin with pg nor be framework');
});

test('a port in use ends the start with what to do', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as { readonly port: number };
  const program = new Program(helpDesk, { HELP_DESK_CONFIG: await databaseFile(), PORT: String(port) });
  await program.printed(`Port ${port} of 127.0.0.1 is in use`);
  expect(await program.code()).toBe(1);
});
