import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';

const page = join(import.meta.dirname, '../../../../docs/operations/audit/security.md');
const rows = readFileSync(page, 'utf8')
  .split('\n')
  .filter((line) => /^\| +(API)?\d/.test(line))
  .map((line) =>
    line
      .slice(1, -1)
      .split(' | ')
      .map((cell) => cell.trim()),
  );

describe('the page about security', () => {
  test('names tests that exist in each row, or says why not', () => {
    expect(rows.length).toBeGreaterThan(150);
    expect(
      rows.map((cells) => [cells[0], ...missing(cells.at(-1) ?? '')]).filter(({ length }) => length > 1),
    ).toEqual([]);
  });

  test('has each risk and each number once', () => {
    const numbers = rows.flatMap(([number = '']) => number.split(', '));
    expect(numbers.filter((number, index) => numbers.indexOf(number) !== index)).toEqual([]);
    expect(numbers).toEqual(
      expect.arrayContaining(Array.from({ length: 10 }, (_, index) => `API${index + 1}`)),
    );
  });
});

const entry = /^\[[\w-]+\]\((\S+\.test\.ts)\) _([^_]+)_$/;

/** The tests of a cell that do not exist. */
function missing(cell: string): readonly string[] {
  if (/^(no test\b|not applicable$|no XML$)/.test(cell)) return [];
  return cell.split('; ').filter((named) => {
    const [, file = '', title = ''] = entry.exec(named) ?? [];
    return title === '' || !readFileSync(join(dirname(page), file), 'utf8').includes(title);
  });
}
