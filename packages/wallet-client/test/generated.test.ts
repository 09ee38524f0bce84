import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const run = promisify(execFile);
const root = fileURLToPath(new URL('..', import.meta.url));

test('the types are those of the document: npm run generate writes them', async () => {
  const generator = dirname(createRequire(import.meta.url).resolve('openapi-typescript/package.json'));
  const args = [join(generator, 'bin', 'cli.js'), 'openapi.json', '--immutable'];
  const { stdout } = await run(process.execPath, args, { cwd: root });
  expect(await readFile(join(root, 'src/openapi.ts'), 'utf8')).toBe(stdout);
});
