import { describe, expect, it, vi } from 'vitest';
import { ServiceProcess } from './service-process.js';

const loader = new URL('run-typescript.mjs', import.meta.url).href;
const file = new URL('../src/process/service-logger.ts', import.meta.url).href;

/** Runs code that has a logger of the service, in a process of its own. */
function run(code: string): ServiceProcess {
  const program = `import { serviceLogger } from '${file}'; const logger = serviceLogger('info'); ${code}`;
  return new ServiceProcess({}, ['--import', loader, '--input-type=module', '--eval', program]);
}

describe("the service's log", () => {
  it('has every line when the process exits', async () => {
    const child = run("logger.info('first'); logger.info('second'); process.exit(0);");
    await child.exitCode();
    expect(messagesOf(child)).toEqual(['first', 'second']);
  });

  it('has a warning, and what came before it, when the process is killed right after', async () => {
    const child = run("logger.info('before'); logger.warn('warning'); process.kill(process.pid, 'SIGKILL');");
    await child.exitCode();
    expect(messagesOf(child)).toEqual(['before', 'warning']);
  });

  it('has a lone line soon while the process goes on', async () => {
    const child = run("logger.info('lone'); setInterval(() => undefined, 1_000);");
    await vi.waitFor(() => expect(messagesOf(child)).toEqual(['lone']), { timeout: 10_000 });
    child.kill('SIGKILL');
    await child.exitCode();
  });
});

function messagesOf({ stderr }: ServiceProcess): readonly unknown[] {
  const lines = stderr.split('\n').filter((line) => line !== '');
  return lines.map((line) => (JSON.parse(line) as { readonly msg: unknown }).msg);
}
