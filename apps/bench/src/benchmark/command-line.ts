import { parseArgs } from 'node:util';

/** The parsed command line. */
export interface CommandLine {
  /** Parts of names; a benchmark runs if its name contains one of them. An empty list selects all. */
  readonly parts: readonly string[];
  readonly rounds: number;
  readonly scale: number;
  /** How many times everything runs, to take the median of each figure. More than once only when ratios are recorded. */
  readonly runs: number;
  /** Whether to compare with the recorded ratios instead of with the bounds. */
  readonly short: boolean;
  /** Whether to record the ratios of the short form instead of comparing them. */
  readonly record: boolean;
  /** The file to which the figures are written as JSON. */
  readonly json: string | undefined;
}

/**
 * Parses the arguments of the process.
 *
 * @throws Error that names the wrong argument
 */
export function commandLine(args: readonly string[]): CommandLine {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      rounds: { type: 'string' },
      scale: { type: 'string' },
      runs: { type: 'string' },
      short: { type: 'boolean', default: false },
      record: { type: 'boolean', default: false },
      json: { type: 'string' },
    },
  });
  const short = values.short || values.record;
  if (values.json !== undefined && short && !values.record)
    throw new Error('--json has nothing to write with --short: leave one of them out');
  if (values.runs !== undefined && !values.record)
    throw new Error('--runs works only with --record: add that, or leave --runs out');
  return {
    parts: positionals,
    rounds: numberOf('rounds', values.rounds ?? (short ? '3' : '5'), Number.isInteger),
    scale: numberOf('scale', values.scale ?? (short ? '0.2' : '1'), Number.isFinite),
    runs: numberOf('runs', values.runs ?? (values.record ? '5' : '1'), Number.isInteger),
    short,
    record: values.record,
    json: values.json,
  };
}

function numberOf(name: string, text: string, isRight: (value: number) => boolean): number {
  const value = Number(text);
  if (value <= 0 || !isRight(value)) throw new Error(`--${name} is ${text}: give a number above 0`);
  return value;
}
