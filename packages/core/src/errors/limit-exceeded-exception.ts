import { FrameworkException } from './framework-exception.js';

/** Something grew beyond its named maximum; nothing was written. */
export class LimitExceededException extends FrameworkException {
  /** The name of the limit, such as `changesMax`. */
  readonly limit: string;
  /** The limit's value. */
  readonly maximum: number;

  constructor(limit: string, maximum: number, message: string) {
    super('limit-exceeded', message);
    this.limit = limit;
    this.maximum = maximum;
  }
}
