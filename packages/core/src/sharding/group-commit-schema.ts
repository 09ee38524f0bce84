import * as z from 'zod';
import { type GroupSettings, defaultGroupSettings } from '../group/group-settings.js';

const fromOne = 'must be a whole number from 1';

function setting(name: keyof GroupSettings) {
  return z.int(fromOne).min(1, fromOne).default(defaultGroupSettings[name]);
}

const settingsSchema = z.strictObject(
  {
    plansMax: setting('plansMax'),
    queueMax: setting('queueMax'),
    planSizeMax: setting('planSizeMax'),
    planCharactersMax: setting('planCharactersMax'),
  },
  { error: ({ code }) => (code === 'invalid_type' ? 'is neither true nor false nor a section' : undefined) },
);

/** The section `group-commit`: `true` is one that changes nothing, and `false` is none. */
export const groupCommitSchema = z
  .preprocess(
    (section) => (section === true ? {} : section === false ? undefined : section),
    settingsSchema.optional(),
  )
  .transform((settings): GroupSettings | false => settings ?? false);
