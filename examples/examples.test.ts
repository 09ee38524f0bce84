import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';

// Each program ends with a comment that shows its output.
const folder = import.meta.dirname;
const programs = globSync('*.ts', { cwd: folder }).filter((file) => !file.endsWith('.test.ts'));

test.each(programs)('%s prints the output that it shows', async (file) => {
  const [, shown] = read(file).split('\n// Output:\n');
  const log = vi.spyOn(console, 'log').mockReturnValue();
  try {
    await import(join(folder, file));
    expect(log.mock.calls.map(([line]) => `// ${line}\n`).join('')).toBe(shown);
  } finally {
    log.mockRestore();
  }
});

test('each program is listed in the page of examples', () => {
  const page = read('../docs/examples.md');
  expect(programs.filter((file) => !page.includes(`(../examples/${file})`))).toEqual([]);
});

function read(file: string): string {
  return readFileSync(join(folder, file), 'utf8');
}
