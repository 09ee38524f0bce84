import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, openSync } from 'node:fs';
import { describe, expect, test, vi } from 'vitest';
import { ServiceProcess } from './service-process.js';

const file = new URL('../src/process/service-logger.ts', import.meta.url).href;

/**
 * What Node runs, with a logger of the service. Node strips the types itself: the compiler that other tests load shares standard
 * error with a separate process, which makes writes to it wait.
 */
function program(code: string): readonly string[] {
  const logger = `import { logTaken, serviceLogger } from '${file}'; const logger = serviceLogger(process, 'info');`;
  return ['--input-type=module', '--eval', `${logger} ${code}`];
}

/** Runs code with a logger of the service in a separate process. */
function run(code: string): ServiceProcess {
  return new ServiceProcess({}, program(code));
}

/** Runs code in the same way, but leaves the log output in the pipe. */
function spawnUnread(code: string, stdio: StdioOptions = ['ignore', 'pipe', 'pipe']): ChildProcess {
  return spawn(process.execPath, program(code), { stdio });
}

describe("the service's log", () => {
  test('contains every line when the process exits', async () => {
    const child = run("logger.info('first'); logger.info('second'); process.exit(0);");
    await child.exitCode();
    expect(messagesOf(child)).toEqual(['first', 'second']);
  });

  test('contains a warning and all lines before it when the process is killed right after', async () => {
    const child = run("logger.info('before'); logger.warn('warning'); process.kill(process.pid, 'SIGKILL');");
    await child.exitCode();
    expect(messagesOf(child)).toEqual(['before', 'warning']);
  });

  test('blocks nobody while it is not read, and then reports how many lines are missing', async () => {
    const warnings = 3_000;
    const child = spawnUnread(
      `for (let i = 0; i < ${warnings}; i++) logger.warn({ filler: 'x'.repeat(1_000) }, 'line');
       process.stdout.write('alive'); setInterval(() => undefined, 1_000);`,
    );
    const [alive] = (await once(child.stdout!, 'data')) as [Buffer];
    expect(alive.toString()).toBe('alive');

    let log = '';
    child.stderr!.setEncoding('utf8').on('data', (chunk: string) => (log += chunk));
    const lastLine = (): LogLine => linesOf(log.slice(0, log.lastIndexOf('\n'))).at(-1) ?? {};
    await vi.waitFor(() => expect(lastLine().dropped).toBeGreaterThan(0), { timeout: 10_000 });
    const lines = linesOf(log);
    expect(lines.filter(({ msg }) => msg === 'line').length + lastLine().dropped!).toBe(warnings);
    child.kill('SIGKILL');
    await once(child, 'exit');
  });

  test('is complete even if the process ends before it was read', async () => {
    const child = spawnUnread(
      `for (let i = 0; i < 500; i++) logger.warn({ filler: 'x'.repeat(1_000) }, 'line');
       process.stdout.write('ending'); await logTaken(process); process.exit(0);`,
    );
    await once(child.stdout!, 'data');
    const chunks = (await child.stderr!.toArray()) as Buffer[];
    expect(linesOf(Buffer.concat(chunks).toString())).toHaveLength(500);
  });

  test('blocks nobody after its reader has left', async () => {
    const child = spawnUnread(
      `process.stdin.once('data', () => { logger.info('early'); logger.warn('late'); void logTaken(process).then(() => process.exit(0)); });
       process.stdout.write('waiting');`,
      ['pipe', 'pipe', 'pipe'],
    );
    await once(child.stdout!, 'data');
    child.stderr!.destroy();
    child.stdin!.write('go');
    expect(await once(child, 'exit')).toEqual([0, null]);
  });

  test.runIf(existsSync('/dev/full'))('blocks nobody when its disk is full', async () => {
    const child = spawnUnread(
      `logger.warn('one'); logger.info('two'); void logTaken(process).then(() => process.exit(0));`,
      ['ignore', 'pipe', openSync('/dev/full', 'w')],
    );
    expect(await once(child, 'exit')).toEqual([0, null]);
  });

  test('contains a single line soon while the process continues', async () => {
    const child = run("logger.info('lone'); setInterval(() => undefined, 1_000);");
    await vi.waitFor(() => expect(messagesOf(child)).toEqual(['lone']), { timeout: 10_000 });
    child.kill('SIGKILL');
    await child.exitCode();
  });
});

function messagesOf({ stderr }: ServiceProcess): readonly unknown[] {
  return linesOf(stderr).map(({ msg }) => msg);
}

interface LogLine {
  readonly msg?: string;
  readonly dropped?: number;
}

function linesOf(log: string): readonly LogLine[] {
  const lines = log.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as LogLine);
}
