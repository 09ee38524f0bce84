import * as z from 'zod';
import { timerMaxMs } from '../clock.js';
import { type GroupSettings, defaultGroupSettings } from '../group/group-settings.js';

const fromOne = 'must be a whole number from 1';
const waitMs = `must be a whole number from 1 to ${timerMaxMs}`;

function setting(name: keyof GroupSettings) {
  return z.int(fromOne).min(1, fromOne).default(defaultGroupSettings[name]);
}

const settingsSchema = z.strictObject(
  {
    plansMax: setting('plansMax'),
    queueMax: setting('queueMax'),
    queueWaitMs: z
      .int(waitMs)
      .min(1, waitMs)
      .max(timerMaxMs, waitMs)
      .default(defaultGroupSettings.queueWaitMs),
    planSizeMax: setting('planSizeMax'),
    planCharactersMax: setting('planCharactersMax'),
  },
  { error: 'is neither true nor false nor a section' },
);

/** The section `group-commit`: `true` is one that changes nothing, and `false` is none. */
export const groupCommitSchema = z
  .preprocess(
    (section) => (section === true ? {} : section === false ? undefined : section),
    settingsSchema.optional(),
  )
  .transform((settings): GroupSettings | false => settings ?? false);
