import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect, test } from 'vitest';

// The field's words instead of the project's own former ones (docs/decisions/0015-the-cut-of-the-sources.md). If a word is also
// plain English, such as turn, side and lost, only the uses with the former meaning are refused.
const root = join(import.meta.dirname, '..');
const files = globSync(
  ['{packages,apps,docs,examples,instruments,e2e,scripts}/**/*.{ts,mjs,md,patch,json}', '*.{md,ts,mjs,json}'],
  { cwd: root, exclude: ['**/node_modules/**', '**/dist/**', '**/migrations/**'] },
).filter((file) => file !== 'instruments/words.test.ts');

/** The old words, each with the word that replaces it. Tables, columns and functions of the database keep their names. */
const refused: readonly (readonly [old: RegExp, now: string, where?: RegExp])[] = [
  [/park(?!ed_(?:events|models|date))/i, 'blocked'],
  [/alarm|\brings?\b|\brang\b/i, 'wake signal, to wake'],
  [/hurr(?:y|ied|ies)/i, 'to flush soon, urgent, brief'],
  [/hint/i, 'notification'],
  [/surroundings/i, 'dependencies'],
  [/\bretries\(|\bretries: \(/, 'isRetryable'],
  [/idempotencyKeySearch|'everywhere'/, 'checkKeyEverywhere'],
  [/\bworlds?\b|World/, 'test environment'],
  [/\bsides?\b(?<!\bside by side)(?! by side)|Sides?\b/, 'contender', /^apps\/bench\//],
  [
    /\b[Hh]omes?\b(?! directory)|[Aa]broad|[Nn]eighbou?r(?:ing)? ?[Ss]hard/,
    'first shard, shard of the same database',
  ],
  [/(?:take|waitFor)Turn\b|without turns|\bturn at the model|\bturn of another/i, 'lock'],
  [/staged.?models?\b/i, 'pending version'],
  [/\bbuil[dt]s? on (?:each other|a pending|one)\b|\bbuiltOn/i, 'depends on'],
  [/\blanes?\b|Lanes?\b|\blane[A-Z]/, 'keyed queue'],
  [/Suspect(?:Gate|Intake)|'careful'|'settling'/, 'quarantine'],
  [/Flow(?:Work|Slots|Dispatch|Dependencies|Policy)|HandlerFlow|flowPolicy/, 'subscription, dispatch'],
  [/\bclass (?!CrossShardException\b)\w+(?:Exception|Fault)\b/, 'Error'],
];

test('the words of the project are those of its field', () => {
  const found = files.flatMap((file) => {
    const lines = [file, ...readFileSync(join(root, file), 'utf8').split('\n')];
    return refused
      .filter(([, , where]) => where === undefined || where.test(file))
      .flatMap(([old, now]) =>
        lines
          .map((line, index) => ({ line, place: index === 0 ? file : `${file}:${index}` }))
          .filter(({ line, place }) => old.test(line) && !isTable(place, line))
          .map(({ line, place }) => `${place} ${line.trim()} (now: ${now})`),
      );
  });
  expect(found).toEqual([]);
});

/** Whether the line is part of the decision's own table of words, or describes former names. */
function isTable(place: string, line: string): boolean {
  return place.startsWith('docs/decisions/0015-') && /^\||^- The settings|^There were|`…/.test(line);
}
