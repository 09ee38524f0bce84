import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { expect, test } from 'vitest';

// An example in a docstring names the tested file that it is cut from: `@example apps/counter/src/counter.ts`, above a block of code.
const root = fileURLToPath(new URL('..', import.meta.url));
const sources = globSync('packages/*/src/**/*.ts', { cwd: root }).map(read);

/** What every application uses. */
const names = [
  'Action',
  'ActionExecutor',
  'Delivery',
  'DeliveryOperator',
  'FrameworkEventHandler',
  'Model',
  'ModelEvent',
  'PgRepository',
  'openDatabases',
  'postgres',
  'relay',
  'specification',
];

test('the names that every application uses have an example in their docstrings', () => {
  const exported = /\/\*\*((?:(?!\*\/)[^])*)\*\/\nexport (?:abstract )?(?:class|function) (\w+)/g;
  const shown = sources
    .flatMap((text) => [...text.matchAll(exported)])
    .filter(([, docstring = '']) => docstring.includes('\n * @example '))
    .map(([, , name]) => name);
  expect(shown).toEqual(expect.arrayContaining(names));
});

test('the examples in docstrings are cut from the files that they name', () => {
  const example = / \* @example (\S+)\n \*\n \* ```ts\n((?: \*.*\n)*?) \* ```\n/g;
  const texts = sources.join('\n');
  const examples = [...texts.matchAll(example)].map(([, file = '', code = '']) => ({ file, code }));
  expect(examples).toHaveLength(texts.match(/^ \* @example/gm)?.length ?? 0);
  expect(examples.filter(({ file, code }) => !flat(read(file)).includes(flat(code)))).toEqual([]);
});

/** The code without a docstring's asterisks and without indentation. */
function flat(code: string): string {
  return code.replaceAll(/^ \* ?/gm, '').replaceAll(/^[ \t]+|[ \t]+$/gm, '');
}

function read(file: string): string {
  return readFileSync(join(root, file), 'utf8');
}
