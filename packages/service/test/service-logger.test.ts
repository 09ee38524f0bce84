import { type ChildProcess, type StdioOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, openSync } from 'node:fs';
import { describe, expect, test, vi } from 'vitest';

const file = new URL('../src/log/service-logger.ts', import.meta.url).href;

/**
 * What Node runs, with a logger of the service. Node strips the types itself: the compiler that other tests load shares standard
 * error with a separate process, which makes writes to it wait.
 */
function program(code: string): readonly string[] {
  const logger = `import { logTaken, serviceLogger } from '${file}'; const logger = serviceLogger(process, 'info');`;
  return ['--input-type=module', '--eval', `${logger} ${code}`];
}

/** A separate process, and what it has written to its log so far. */
interface Run {
  readonly child: ChildProcess;
  readonly log: () => string;
}

/** Runs code with a logger of the service in a separate process. */
function run(code: string): Run {
  const child = spawnUnread(code, ['ignore', 'inherit', 'pipe']);
  let log = '';
  child.stderr?.setEncoding('utf8').on('data', (chunk: string) => (log += chunk));
  return { child, log: () => log };
}

/** Runs code in the same way, but leaves the log output in the pipe. */
function spawnUnread(code: string, stdio: StdioOptions = ['ignore', 'pipe', 'pipe']): ChildProcess {
  return spawn(process.execPath, program(code), { stdio });
}

describe("the service's log", () => {
  test('contains every line when the process exits', async () => {
    const ended = run("logger.info('first'); logger.info('second'); process.exit(0);");
    await once(ended.child, 'close');
    expect(messagesOf(ended)).toEqual(['first', 'second']);
  });

  test('contains a warning and all lines before it when the process is killed right after', async () => {
    const killed = run(
      "logger.info('before'); logger.warn('warning'); process.kill(process.pid, 'SIGKILL');",
    );
    await once(killed.child, 'close');
    expect(messagesOf(killed)).toEqual(['before', 'warning']);
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
    const running = run("logger.info('lone'); setInterval(() => undefined, 1_000);");
    await vi.waitFor(() => expect(messagesOf(running)).toEqual(['lone']), { timeout: 10_000 });
    running.child.kill('SIGKILL');
    await once(running.child, 'close');
  });
});

function messagesOf({ log }: Run): readonly unknown[] {
  return linesOf(log()).map(({ msg }) => msg);
}

interface LogLine {
  readonly msg?: string;
  readonly dropped?: number;
}

function linesOf(log: string): readonly LogLine[] {
  const lines = log.split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as LogLine);
}
