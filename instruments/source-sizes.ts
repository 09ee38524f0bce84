import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

// The lines and files of each package and app, every source file except tests, as the table in CONTRIBUTING.md has them.
//
//     node instruments/source-sizes.ts --write

const root = join(import.meta.dirname, '..');
const page = join(root, 'CONTRIBUTING.md');
const table = /^\| source +\| +lines \| +files \|\n(\|.*\n)+/m;

/** The page with a table of the present sizes. */
export function pageWithSizes(): string {
  const sizes = globSync('{packages,apps}/*/src', { cwd: root })
    .toSorted()
    .map((folder) => {
      const files = globSync('**/*.{ts,tsx}', { cwd: join(root, folder) }).filter(
        (file) => !/\.test(-d)?\.tsx?$/.test(file),
      );
      const lines = files.map(
        (file) => readFileSync(join(root, folder, file), 'utf8').split('\n').length - 1,
      );
      return [`\`${folder.replace('/src', '')}\``, sum(lines), files.length] as const;
    });
  const rows = [
    ...sizes,
    ['all', sum(sizes.map(([, lines]) => lines)), sum(sizes.map(([, , files]) => files))] as const,
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  const row = (name: string, lines: string, files: string): string =>
    `| ${name.padEnd(width)} | ${lines.padStart(6)} | ${files.padStart(5)} |\n`;
  const text =
    row('source', 'lines', 'files') +
    `| ${'-'.repeat(width)} | ${'-'.repeat(5)}: | ${'-'.repeat(4)}: |\n` +
    rows.map(([name, lines, files]) => row(name, lines.toLocaleString('en'), String(files))).join('');
  return readFileSync(page, 'utf8').replace(table, text);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}

if (process.argv.includes('--write')) writeFileSync(page, pageWithSizes());
