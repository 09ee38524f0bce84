import { readFileSync } from 'node:fs';

const guide = readFileSync(new URL('../../../docs/guides/on-call-exercises.md', import.meta.url), 'utf8');

/** The text of an exercise for operators. */
function exerciseText(title: string): string {
  const text = new RegExp(`\n## ${title}\n(.*?)(?=\n## |$)`, 's').exec(guide)?.[1];
  if (text === undefined) throw new Error(`docs/guides/on-call-exercises.md has no exercise '${title}'`);
  return text;
}

/** The commands of an exercise, in order, without the name of the program. */
export function exerciseCommands(title: string): readonly string[] {
  return [...exerciseText(title).matchAll(/^ *framework (.*)$/gm)].map(([, words = '']) => words);
}

/** The statements that cause the incident of an exercise. */
export function exerciseCause(title: string): readonly string[] {
  const script = /```sql\n(.*?)```/s.exec(exerciseText(title))?.[1] ?? '';
  return script.split(/;\n(?=create|insert|$)/).filter((statement) => statement.trim() !== '');
}
