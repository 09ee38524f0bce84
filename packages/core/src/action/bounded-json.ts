import { LimitExceededException } from '../errors/limit-exceeded-exception.js';
import type { ExecutionLimits } from './execution-limits.js';

/**
 * Gives JSON back that is not too long to be stored.
 *
 * @param what names it in the error, such as `params of WalletCloseAction`
 * @throws LimitExceededException `limit-exceeded` beyond `payloadCharactersMax`
 */
export function boundedJson(
  what: string,
  json: string,
  { payloadCharactersMax }: Pick<ExecutionLimits, 'payloadCharactersMax'>,
): string {
  if (json.length <= payloadCharactersMax) return json;
  throw new LimitExceededException(
    'payloadCharactersMax',
    payloadCharactersMax,
    `${json.length} characters are too many for the ${what}: keep them below ${payloadCharactersMax}`,
  );
}
